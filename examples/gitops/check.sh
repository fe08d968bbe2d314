#!/bin/sh
# check.sh FILE [BEFORE [RECORDING]]: see README.md.
set -eu
file=$1
before=${2:-}
recording=${3:-}

lbd config check --config "$file"
[ -n "$before" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lbd config show --config "$before" | sed 's/ *# .*//' >"$work/before"
lbd config show --config "$file" | sed 's/ *# .*//' >"$work/after"
echo "settings:"
diff -U 0 "$work/before" "$work/after" | sed -n 's/^\([-+]\)\([^-+]\)/  \1\2/p' || true
[ -n "$recording" ] || exit 0

for settings in "$before" "$file"; do
    echo "with $settings:"
    lbd dry-run --recording "$recording" --config "$settings" | tail -n 1 | sed 's/^/  /'
done
