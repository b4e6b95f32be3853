#!/bin/sh
# run_python.sh PYTHON SCRIPT [ARGUMENT...]: runs a test of a real model server, or says what is missing.
if ! [ -x "$1" ]; then
  echo "$1 is missing: run make setup (or configure with -DMOONPOOL_PYTHON=...)" >&2
  exit 1
fi
exec "$@"
