#!/bin/bash
# Torch's launcher on several hosts without a scheduler, as the launcher of a search:
#
#     HOSTS="node1 node2" NPROC=8 autotune search train.py \
#         --launcher examples/cluster/torchrun_on_hosts.sh -- [ARGUMENTS OF THE SCRIPT]
#
# Call it on the first of the hosts, in a folder that all of them see under the same path. ssh needs
# a key without a passphrase, and the hosts the same Python environment. PORT (29500) has to be free
# on the first host.
set -u

read -ra hosts <<<"${HOSTS:?name the hosts, such as HOSTS=\"node1 node2\"}"
torchrun=${TORCHRUN:-torchrun}
started=()
# The remote terminal (-tt) ends what runs in it when this end of it is gone.
trap '((${#started[@]})) && kill "${started[@]}" 2>/dev/null' TERM EXIT
for rank in "${!hosts[@]}"; do
    command=("$torchrun" --nnodes "${#hosts[@]}" --node-rank "$rank"
        --nproc-per-node "${NPROC:-1}"
        --master-addr "${hosts[0]}" --master-port "${PORT:-29500}" "$@")
    ssh -tt -o BatchMode=yes "${hosts[rank]}" \
        "cd $(printf %q "$PWD") && exec $(printf '%q ' "${command[@]}")" &
    started+=($!)
done

# The first host that fails ends the others.
code=0
for _ in "${started[@]}"; do
    wait -n "${started[@]}" || { code=$?; break; }
done
exit "$code"
