#!/usr/bin/env bash
# Fetches the wheels that a machine without network has to be given, for Python 3.12 on x86-64 Linux.
#
#     benchmarks/gpu/wheels.sh [FOLDER]        default: .whl at the root of the checkout
#
# The folder is not for the repository: name it in .git/info/exclude. `kit.py` installs what is in
# it. The versions are those that the machine of studies/h200/ lacks; wheel_check.py says whether
# they suffice beside what is there, by their metadata and, where a Python 3.12 is found (PYTHON312
# names one), by running the command line in a clean virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-.whl}
python=${PYTHON:-python3}

wheels=(
    optuna==5.0.0 optuna-dashboard==0.21.0
    SQLAlchemy==2.1.9 alembic==1.20.1 Mako==1.4.3 colorlog==6.12.0 bottle==0.13.4
    pydantic==2.14.3 pydantic-core==2.50.4 annotated-types==0.8.0 typing-inspection==0.4.5
    typing-extensions==4.16.0 click==8.5.1 psutil==7.2.2 pytest-timeout==2.4.0
    pytorch-autotune==2.0.0
)

mkdir -p "$folder"
"$python" -m pip download --quiet --no-deps --dest "$folder" --only-binary=:all: \
    --implementation cp --python-version 3.12 --abi cp312 --abi abi3 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform any \
    "${wheels[@]}"
du -ch "$folder"/*.whl | tail -1
"$python" benchmarks/gpu/wheel_check.py "$folder"
