# autotune VERSION export --format torchrun, trial 7 of study tiny
# measured on Test GPU (Test CPU, 2 cores), torch 2.15.0, machine 0123456789ab
# use: sh FILE train.py --its --arguments
# not carried, set these yourself:
#   batch_size=64: DataLoader(batch_size=...)
#   num_workers=4: DataLoader(num_workers=...)
#   prefetch_factor=4: DataLoader(prefetch_factor=...)
#   persistent_workers=true: DataLoader(persistent_workers=...)
#   pin_memory=true: DataLoader(pin_memory=...) and Tensor.to(device, non_blocking=...)
#   in_order=false: DataLoader(in_order=...)
#   amp_dtype=bfloat16: torch.autocast(device_type, dtype=...), torch.amp.GradScaler
#   float32_matmul_precision=high: torch.set_float32_matmul_precision(...)
#   deterministic=true: torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment before CUDA is used
#   fill_uninitialized_memory=false: torch.utils.deterministic.fill_uninitialized_memory = False
#   compile_mode=max-autotune: Module.compile(mode=...)
#   compile_dynamic=true: Module.compile(dynamic=...)
#   compile_scope=blocks: for block in model.blocks: block.compile(mode=...)
#   activation_memory_budget=0.5: torch._functorch.config.activation_memory_budget = ..., before torch.compile
#   channels_last=true: Module.to(memory_format=torch.channels_last), also for every 4-D input; channels_last_3d for 5-D ones
#   cudnn_benchmark=true: torch.backends.cudnn.benchmark = ...
#   accumulation_steps=2: (loss / accumulation_steps).backward() for each batch, then optimizer.step()
#   optimizer_impl=fused: torch.optim.AdamW(..., fused=True), or foreach=True or False
#   gc=frozen: gc.collect(); gc.freeze(), for 10 also gc.disable() and gc.collect() every ten steps
#   merge_param_groups=true: torch.optim.AdamW(...) with fewer groups
#   sdpa_backend=flash: torch.backends.cuda.enable_flash_sdp(True), and False for the other kernels
#   activation_checkpointing=true: torch.utils.checkpoint.checkpoint(block, *inputs, use_reentrant=False)
#   lr_factor=1.5: multiply your learning rates by it
exec env OMP_NUM_THREADS=8 LD_PRELOAD=libjemalloc.so.2 torchrun --standalone --nproc-per-node 1 "$@"
