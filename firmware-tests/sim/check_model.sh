#!/bin/sh
# Minutes of SPIN: `make check-model`. The search of firmware-tests/states/ runs the code, and has time for all
# schedules of 2 ids; of 3 and 4 ids all schedules of the rule are here, under fairness too, and that its premises are
# needed. "holds" is exhaustive within its bounds, "searched" is not (model.sh). What a row does not give is as in
# membership.pml: 3 ids, all of them members, 2 commits, 2 views, a crash, a restart or first start, nobody leaves. Any
# member may be stopped or cut off at any time, in all of them.
. firmware-tests/support/shell.sh
. firmware-tests/support/model.sh
if ! command -v spin >/dev/null; then skip "membership_protocol" "no spin"; finish; fi
MODEL_KEEP=$BUILD
mkdir -p "$BUILD"
model two_crashes_of_3_members_in_3_views 300 holds -DRESTARTS=0 -DCRASHES=2 -DEPOCHS=1 -DVIEWS=3
model a_restart_of_3_members 300 holds -DEPOCHS=1 -DCRASHES=2
model nor_of_any_that_ever_ran_without_a_list 300 holds -DNOLIST -DEPOCHS=1 -DCRASHES=2 -DRESTARTS=1 -DVIEWS=3
model growth_and_leaving_of_3_of_4_members 300 holds -DIDS=4 -DINIT=3 -DEPOCHS=1 -DLEAVES=1
model two_crashes_of_4_members 300 holds -DIDS=4 -DRESTARTS=0 -DCRASHES=2 -DEPOCHS=1
model crash_rejoin_growth_and_leaving_of_3 300 searched -DINIT=2 -DCRASHES=1 -DRESTARTS=2 -DLEAVES=1
model crash_rejoin_growth_and_leaving_of_4 300 searched -DIDS=4 -DINIT=3 -DCRASHES=2 -DRESTARTS=2 -DLEAVES=1 -DVIEWS=3
model progress_of_3_members_rejoin_growth_and_leaving 300 holds -DLIVE -DINIT=2 -DVIEWS=3 -DLEAVES=1
model progress_of_4_members 300 holds -DLIVE -DIDS=4 -DRESTARTS=0 -DCRASHES=2 -DEPOCHS=1 -DVIEWS=3
model progress_of_3_members 300 holds -DLIVE -DEPOCHS=2 -DVIEWS=3 -DCRASHES=2
model who_was_taken_in_is_told_whoever_coordinates 300 holds -DLIVE -DNOLIST -DINIT=2 -DFIRST=1 -DVIEWS=3 -DLEAVES=1
model or_waits_for_ever 60 counterexample -DUNTOLD -DQUIET -DNOLIST -DINIT=2 -DFIRST=1 -DVIEWS=3
model a_list_of_the_ended_that_lies 60 counterexample -DLIES
model a_list_newer_than_the_answers 60 counterexample -DNEWER -DINIT=2 -DEPOCHS=1 -DCRASHES=2 -DRESTARTS=2
model who_came_to_wait_after_the_list 60 counterexample -DLATER -DINIT=2 -DEPOCHS=1 -DRESTARTS=2
model more_than_half_of_the_rest_is_no_quorum 60 counterexample -DREST -DCRASHES=2
finish
