#!/usr/bin/env bash
# stages.sh [-k] TARGET...: makes one target after the other, up to the first that fails (-k: all of
# them), and says at the end how many seconds each took.
set -uo pipefail
said="" status=0 begin=$SECONDS keep=
[ "${1:-}" = -k ] && { keep=1; shift; }
for target in "$@"; do
  start=$SECONDS
  ${MAKE:-make} --no-print-directory "$target" || { status=$? target="$target (failed)"; }
  said+="$target $((SECONDS - start)) s, "
  [ $status -eq 0 ] || [ -n "$keep" ] || break
done
echo "${said}in all $((SECONDS - begin)) s"
exit $status
