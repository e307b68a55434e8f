#!/usr/bin/env bash
# Installs the few Debian packages that the build wants, where they are missing and that is possible.
# g++ and xxhash.h and gtest are needed; ccache only makes rebuilds quicker.
set -euo pipefail

missing=()
command -v g++ >/dev/null || missing+=(g++)
[ -e /usr/include/xxhash.h ] || missing+=(libxxhash-dev)
[ -e /usr/include/gtest/gtest.h ] || missing+=(libgtest-dev)
command -v ccache >/dev/null || missing+=(ccache)
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then sudo=(sudo -n); fi
if command -v apt-get >/dev/null && { [ ${#sudo[@]} -eq 0 ] || sudo -n true 2>/dev/null; }; then
  echo "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "please install: ${missing[*]}   (Debian: apt-get install ${missing[*]})" >&2
  [ "${missing[*]}" = ccache ] || exit 1
fi
