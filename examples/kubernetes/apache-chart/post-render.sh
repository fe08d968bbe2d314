#!/bin/sh
# For helm --post-renderer: the rendered chart comes on standard input, and goes on with what kustomization.yaml adds.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$(dirname "$0")/kustomization.yaml" "$folder"
cat >"$folder/all.yaml"
kubectl kustomize "$folder"
