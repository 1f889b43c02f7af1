# autotune VERSION export --format torchrun, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: sh FILE train.py --its --arguments
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   sharding=fsdp: for block in model.blocks: fully_shard(block); fully_shard(model)
#   reshard_after_forward=false: fully_shard(block, reshard_after_forward=...)
exec env OMP_NUM_THREADS=2 TORCH_COMPILE_DISABLE=1 torchrun --standalone --nproc-per-node 4 "$@"
