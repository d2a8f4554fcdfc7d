#!/bin/sh
# A few cases of the lab of real faults, once each; all of them are `make lab`. Bounds are five times as wide: what is looked
# at here is who is named, and that everybody ends.
# suite: alone
export SLACK=5
exec sh firmware-tests/lab/lab.sh tcp_kill_worker tcp_cut_coordinator tcp_elastic_worker node_kill_coordinator
