#!/bin/sh
# The membership protocol holds in every state within small bounds, and breaks where it must. More: `make check-model`.
. firmware-tests/support/shell.sh
. firmware-tests/support/model.sh
MODEL_OPTIMIZE=-O0 # compiling takes longer than searching
if ! command -v spin >/dev/null; then skip "membership_protocol" "no spin"; finish; fi
model no_two_epochs_of_a_number_for_3_members 60 holds -DRESTARTS=0 -DEPOCHS=1
model no_two_epochs_of_a_number_with_growth_and_leaving 60 holds -DINIT=2 -DEPOCHS=1 -DLEAVES=1
model members_go_on_once_faults_stop 60 holds -DLIVE -DEPOCHS=1 -DVIEWS=3
model who_came_to_wait_after_the_list_splits_the_job 60 counterexample -DLATER -DINIT=2 -DEPOCHS=1 -DRESTARTS=2
model a_list_of_the_ended_that_lies_splits_the_job 60 counterexample -DLIES
finish
