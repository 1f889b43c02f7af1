# autotune VERSION export --format torchrun, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: sh FILE train.py --its --arguments
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   ddp_bucket_mb=50: DistributedDataParallel(model, bucket_cap_mb=...)
#   gradient_as_bucket_view=true: DistributedDataParallel(model, gradient_as_bucket_view=...)
#   ddp_comm_dtype=bfloat16: ddp.register_comm_hook(None, default_hooks.bf16_compress_hook), or fp16_compress_hook
exec env OMP_NUM_THREADS=2 TORCH_COMPILE_DISABLE=1 torchrun --standalone --nproc-per-node 4 "$@"
