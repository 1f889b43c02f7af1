# autotune VERSION export --format env, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: . FILE, in the shell that starts training
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   sharding=fsdp: for block in model.blocks: fully_shard(block); fully_shard(model)
#   reshard_after_forward=false: fully_shard(block, reshard_after_forward=...)
#   processes=4: start the training by torchrun --nproc-per-node 4
export OMP_NUM_THREADS=2
export TORCH_COMPILE_DISABLE=1  # trains without torch.compile (compile_mode: null)
