#!/bin/sh
# suite: long
# test_edges with 1,000 jobs of each kind (four minutes).
set -e
JOBS=1000 "${BUILD:-build}"/firmware-tests/test_edges
