# autotune VERSION export --format env, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: . FILE, in the shell that starts training
# not carried, set these yourself:
#   batch_size=32: DataLoader(batch_size=...)
#   gradient_as_bucket_view=true: DistributedDataParallel(model, gradient_as_bucket_view=...)
#   processes=16: start the training by torchrun --nnodes 2 --nproc-per-node 8 on each host, with --rdzv-backend and --rdzv-endpoint
export OMP_NUM_THREADS=2
export TORCH_COMPILE_DISABLE=1  # trains without torch.compile (compile_mode: null)
