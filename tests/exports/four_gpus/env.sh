# autotune VERSION export --format env, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: . FILE, in the shell that starts training
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   ddp_bucket_mb=50: DistributedDataParallel(model, bucket_cap_mb=...)
#   gradient_as_bucket_view=true: DistributedDataParallel(model, gradient_as_bucket_view=...)
#   ddp_comm_dtype=bfloat16: ddp.register_comm_hook(None, default_hooks.bf16_compress_hook), or fp16_compress_hook
#   processes=4: start the training by torchrun --nproc-per-node 4
export OMP_NUM_THREADS=2
export TORCH_COMPILE_DISABLE=1  # trains without torch.compile (compile_mode: null)
