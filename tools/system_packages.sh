#!/usr/bin/env bash
# Installs the few Debian packages that the build wants, where they are missing and that is possible.
# g++ and xxhash.h and gtest are needed; ccache only makes rebuilds quicker, and chromium only opens
# the report page in its tests, which are skipped without it.
set -euo pipefail

needed=() useful=()
command -v g++ >/dev/null || needed+=(g++)
[ -e /usr/include/xxhash.h ] || needed+=(libxxhash-dev)
[ -e /usr/include/gtest/gtest.h ] || needed+=(libgtest-dev)
command -v ccache >/dev/null || useful+=(ccache)
command -v chromium >/dev/null || useful+=(chromium)
[ $((${#needed[@]} + ${#useful[@]})) -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then sudo=(sudo -n); fi
install() {
  echo "installing $*"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
if command -v apt-get >/dev/null && { [ ${#sudo[@]} -eq 0 ] || sudo -n true 2>/dev/null; }; then
  "${sudo[@]}" apt-get update -qq
  [ ${#needed[@]} -eq 0 ] || install "${needed[@]}"
  [ ${#useful[@]} -eq 0 ] || install "${useful[@]}" || echo "going on without ${useful[*]}" >&2
else
  echo "please install: ${needed[*]} ${useful[*]}   (Debian: apt-get install ...)" >&2
  [ ${#needed[@]} -eq 0 ] || exit 1
fi
