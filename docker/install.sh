#!/bin/sh
# docker/install.sh SOURCE TARGET [EXTRA]: lbd and all it needs, in a new virtual environment TARGET.
# Wheels of everything are made first and locked by their hashes; nothing but what the lock names is installed.
set -eu
source=$1
target=$2
extra=${3:+[$3]}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip wheel --quiet --disable-pip-version-check --use-pep517 --wheel-dir "$wheels" "$source$extra"
python3 "$(dirname "$0")/lock.py" "$wheels" >"$wheels/lock.txt"
python3 -m venv --without-pip "$target"
python3 -m pip --quiet --disable-pip-version-check --python "$target" install --root-user-action ignore \
    --no-index --no-deps --find-links "$wheels" --require-hashes --requirement "$wheels/lock.txt"
cp "$wheels/lock.txt" "$target/lock.txt"
