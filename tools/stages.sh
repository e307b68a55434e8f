#!/usr/bin/env bash
# stages.sh TARGET...: makes one target after the other, up to the first that fails, and says at the
# end how many seconds each took.
set -uo pipefail
said="" status=0 begin=$SECONDS
for target in "$@"; do
  start=$SECONDS
  ${MAKE:-make} --no-print-directory "$target" || { status=$? target="$target (failed)"; }
  said+="$target $((SECONDS - start)) s, "
  [ $status -eq 0 ] || break
done
echo "${said}in all $((SECONDS - begin)) s"
exit $status
