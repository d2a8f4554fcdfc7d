#!/bin/sh
# A few cases of the lab of real faults, once each; all of them are `make lab`. Bounds are fifteen times as wide, and
# ranks may come late: what is looked at here is who is named, and that everybody ends.
# suite: alone
export SLACK=15 JOIN=10
exec sh firmware-tests/lab/lab.sh tcp_kill_worker tcp_cut_coordinator tcp_elastic_worker node_kill_coordinator
