# autotune VERSION export --format torchrun, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: RDZV_ENDPOINT=FIRST_HOST:29400 sh FILE train.py --its --arguments, on each host
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   gradient_as_bucket_view=true: DistributedDataParallel(model, gradient_as_bucket_view=...)
exec env OMP_NUM_THREADS=2 TORCH_COMPILE_DISABLE=1 torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "${RDZV_ENDPOINT:?first host:port}" "$@"
