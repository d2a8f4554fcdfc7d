/* The membership protocol of lib/elastic/, for SPIN. An epoch is one committed membership, a view is one attempt to agree
 * on the next one; names are those of the code. Every rule that the code has for safety is here. What decides only how
 * soon (timeouts, suspicions, the order of connections) may happen at any time.
 *
 * Messages are facts that stay: each member may read each of them at any time, or never. So loss, delay, reordering,
 * stopped members and every partition are in the model, and no channel depth bounds it. A connection is to the coordinator
 * of the promised view alone; what was on it is gone with a higher promise.
 *
 * Each step names the actions of the table in lib/elastic/README.md that it is. What gf_view_report sends is a fact as
 * soon as the promise is made, gf_view_accepted reads one, and gf_view_warn only lets others fail sooner.
 *
 * firmware-tests/states/ searches the code itself. What that does not cover is here: all schedules of 3 and 4 members within
 * the bounds below (the search: all of 2 ids, those of 3 and 4 up to a number of deviations); progress under weak fairness
 * (the search asks at the end of a schedule); and that each premise is needed. What is not here, and is there: a process
 * that was left out comes in again as another one, where `out` is for good; two processes of one id that live at once
 * (`runs` has one an id); connections, frames and deadlines. So a defect of the rule's code is looked for there.
 *
 * Bounds: IDS member ids, of which the first INIT begin, led by FIRST; EPOCHS commits; VIEWS views of an epoch;
 * CRASHES; RESTARTS (of dead ids, and first starts of ids that never ran, which is growth); LEAVES.
 *
 * -DNOLIST nobody is told who has ended: majorities alone decide. Then it also holds for what the dead had committed.
 * -DLIES   the list of ended members names some that run. A counterexample is expected.
 * -DNEWER  the list of the ended is that of the moment, not that of before START_VIEW. A counterexample is expected.
 * -DLATER  a process counts that came to wait after the list was made. A counterexample is expected.
 * -DREST   the quorum is more than half of those that are not ended. A counterexample is expected.
 * -DUNTOLD a process is told of the commit that took it in only where its own inviter made that. With -DQUIET a
 *          counterexample is expected.
 * -DLIVE   progress under weak fairness: timeouts are long enough, so only the dead are suspected.
 * -DQUIET  the same of states in which nobody can do anything, without fairness, which SPIN does not find there. */
#ifdef QUIET
#define LIVE
#endif
#ifndef IDS
#define IDS 3
#endif
#ifndef INIT
#define INIT IDS
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef VIEWS
#define VIEWS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef LEAVES
#define LEAVES 0
#endif

#define ALL ((1 << IDS) - 1)
#define FIRST_LIST ((1 << INIT) - 1)
#define bit(i) (1 << (i))
#define has(set, i) (((set) >> (i)) & 1)
#define count(set) (has(set, 0) + has(set, 1) + has(set, 2) + has(set, 3))
#define lowest(set) (has(set, 0) -> 0 : (has(set, 1) -> 1 : (has(set, 2) -> 2 : 3)))
#define AT(e, v) ((e) * (VIEWS + 1) + (v))
#define AT_MAX ((EPOCHS + 1) * (VIEWS + 1))

/* ---- each member id's process ---- */
byte runs = FIRST_LIST;    /* set: its process runs */
byte waiting;              /* set: RECOVERING, of no epoch */
byte out;                  /* set: excluded, or has left */
byte leaves;               /* set: asks to be left out of the next epoch */
byte epoch[IDS];           /* the last committed epoch that it knows of */
byte list[IDS];            /* its members */
byte first[IDS];           /* its first coordinator: views go round the list from there, by member id */
byte by[IDS];              /* the commit that it began with; 0: the first epoch */
byte view[IDS];            /* highest promised view; 0: the epoch is in use */
byte accepted[IDS];        /* view of the accepted proposal; 0: none */
byte knocks_at[4];         /* RECOVERING: the member that it is connected to */
byte incarnation[4];       /* which of the processes that had this id it is; 0: it began with the job */
byte invited[4];           /* RECOVERING: the commit that it is told of, by that member */
byte history[IDS * (EPOCHS + 1)]; /* the list of each epoch that this process has begun */

/* ---- messages, of an epoch and view ---- */
byte do_view_change[AT_MAX];  /* set of senders that have promised it */
bit start_view[AT_MAX];       /* it is led */
byte ended_then[AT_MAX];      /* the list of the ended as it was before START_VIEW */
byte waited_then[AT_MAX];     /* processes that waited at its coordinator at that moment, and still do */
byte answer[AT_MAX];          /* set of members that have answered START_VIEW */
byte join[AT_MAX];            /* and of processes that wait */
byte told[AT_MAX * IDS];      /* with an answer: the view of the accepted proposal */
byte proposal[AT_MAX];        /* list; 0: not sent */
byte heads[AT_MAX];           /* its first */
byte admits[AT_MAX * IDS];    /* the incarnation that it takes in; 0: none of this id */
#ifdef UNTOLD
byte fresh[AT_MAX];           /* it was not proposed before */
#define may_tell(i) (fresh[by[i]] == 1)
#else
#define may_tell(i) true
#endif
byte accept[AT_MAX];          /* set of senders */
bit commit[AT_MAX];

byte crashes, restarts, left;
byte chosen[EPOCHS + 1];      /* the list that was begun under each number, by whomever, last */

#ifdef NOLIST
#define ended(i) 0
#else
#ifdef LIES
#define ended(i) (ALL & ~bit(i))
#else
#define ended(i) (ALL & ~runs)
#endif
#endif

/* Member i's epoch took in process j, which has not heard of it. */
#define unheard(j, i) ((j) < IDS && has(waiting & runs, j) && admits[by[i] * IDS + (j)] == incarnation[j])
/* RECOVERING processes that are connected to member i, but for those that it tells of the commit that took them in. */
#define comes(j, i) ((j) < IDS && has(waiting & runs, j) && knocks_at[j] == (i) && invited[j] == 0 && !unheard(j, i))
#define comers(i) (comes(0, i) | (comes(1, i) << 1) | (comes(2, i) << 2) | (comes(3, i) << 3))

/* More than half of the members of the last committed epoch, exactly half with the lowest member id. Or everybody: each
 * member id of the job is here, or had no running process before START_VIEW, or one that waited and has answered it. */
#define half(of, here) (2 * count((here) & (of)) > count(of) || \
                        (2 * count((here) & (of)) == count(of) && has(here, lowest(of))))
#ifdef NEWER
#define ended_of(i) ended(i)
#else
#define ended_of(i) ended_then[here_at(i)]
#endif
#ifdef REST
#define quorum(of, here, i) half((of) & ~ended(i), here)
#elif defined(NOLIST)
#define quorum(of, here, i) half(of, here)
#else
#define quorum(of, here, i) (half(of, here) || (((here) | ended_of(i) | join[here_at(i)]) & ALL) == ALL)
#endif
#ifdef LATER
#define knew(c, j) true
#else
#define knew(c, j) has(waited_then[here_at(c)], j)
#endif

#define after1(x) (((x) + 1) % IDS)
#define after2(x) (((x) + 2) % IDS)
#define after3(x) (((x) + 3) % IDS)
#define next_of(l, x) (has(l, after1(x)) -> after1(x) : (has(l, after2(x)) -> after2(x) : (has(l, after3(x)) -> after3(x) : x)))
#define turn(l, f, v) ((v) <= 1 -> f : ((v) == 2 -> next_of(l, f) : next_of(l, next_of(l, f))))
#define coordinator(i) turn(list[i], first[i], view[i])
#define member(i) has(runs & ~waiting & ~out, i)
#define here_at(i) AT(epoch[i], view[i])
#define ahead(j, i) ((j) < IDS && member(j) && epoch[j] > epoch[i])

#ifdef LIVE
#define live(i) (runs & ~out & (~waiting | unheard(0, i) | (unheard(1, i) << 1) | (unheard(2, i) << 2) | \
                 (unheard(3, i) << 3)))
/* gf_view_is_outdated: a view that began now could count more of those that have ended or wait. */
#define outdated(i) (coordinator(i) == i && start_view[here_at(i)] && \
                     ((live(i) | ended_then[here_at(i)] | waited_then[here_at(i)] | join[here_at(i)]) & ALL) != ALL && \
                     ((live(i) | ended(i) | comers(i)) & ALL) == ALL)
#define suspects(i) (view[i] == 0 -> ((list[i] & (~live(i) | leaves)) != 0 || comers(coordinator(i)) != 0) \
                                  : (!member(coordinator(i)) || outdated(i)))
#define may_turn(j) (!member(knocks_at[j]) || coordinator(knocks_at[j]) != knocks_at[j])
#else
#define suspects(i) true
#define may_turn(j) true
#endif

/* This member learns of commit `from`, of list `next`, first `head`. */
inline begin_epoch() {
    by[id] = from;
    if
    :: !has(next, id) -> out = out | bit(id); printf("%d is out\n", id)
    :: else ->
        epoch[id]++; list[id] = next; first[id] = head; view[id] = 0; accepted[id] = 0;
        history[id * (EPOCHS + 1) + epoch[id]] = next;
        /* No two epochs with the same number and different members, of processes that run. */
        k = 0;
        do
        :: k < IDS ->
            assert(!member(k) || history[k * (EPOCHS + 1) + epoch[id]] == 0 ||
                   history[k * (EPOCHS + 1) + epoch[id]] == next);
            k++
        :: else -> break
        od;
#ifdef NOLIST
        assert(chosen[epoch[id]] == 0 || chosen[epoch[id]] == next); /* nor of any that ever ran */
#endif
        if /* All that had begun another epoch of this number are dead: their connections, and what was on them, are gone. */
        :: chosen[epoch[id]] != 0 && chosen[epoch[id]] != next ->
            k = AT(epoch[id], 0);
            do
            :: k <= AT(epoch[id], VIEWS) ->
                do_view_change[k] = 0; start_view[k] = 0; ended_then[k] = 0; waited_then[k] = 0; answer[k] = 0; join[k] = 0;
                proposal[k] = 0; accept[k] = 0; commit[k] = 0; heads[k] = 0;
                best = 0;
                do
                :: best < IDS -> admits[k * IDS + best] = 0; told[k * IDS + best] = 0; best++
                :: else -> break
                od;
                k++
            :: else -> break
            od
        :: else
        fi;
        chosen[epoch[id]] = next;
        printf("%d begins epoch %d: members %d\n", id, epoch[id], next)
    fi;
    next = 0; head = 0; from = 0; best = 0; k = 0
}

/* A promise: nothing below it is acknowledged any more. DO_VIEW_CHANGE goes to the view's coordinator. */
inline promise() {
    view[id]++;
    do_view_change[here_at(id)] = do_view_change[here_at(id)] | bit(id);
    printf("%d promises view %d of epoch %d, accepted %d\n", id, view[id], epoch[id], accepted[id])
}

/* What waited somewhere as this id does so no more. */
inline waits_no_more() {
    k = 0;
    do :: k < AT_MAX -> waited_then[k] = waited_then[k] & ~bit(id); k++ :: else -> break od;
    k = 0
}

proctype Member(byte id) {
    byte k, best, here, next, head, from;
end:
    do
    /* gf_view_begin, gf_view_lost, gf_view_late: something failed, somebody waits, or a view takes too long. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] < VIEWS && suspects(id) -> promise() }
    /* gf_view_promise: others are in a higher view. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] < VIEWS && do_view_change[here_at(id) + 1] != 0 -> promise() }
    /* gf_view_lead: who has ended and who waits is noted, then all are asked. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] > 0 && coordinator(id) == id && !start_view[here_at(id)] ->
            start_view[here_at(id)] = 1; ended_then[here_at(id)] = ended(id); waited_then[here_at(id)] = comers(id);
            answer[here_at(id)] = answer[here_at(id)] | bit(id); told[here_at(id) * IDS + id] = accepted[id] }
    /* gf_view_promise: a member answers .. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] > 0 && start_view[here_at(id)] &&
                !has(answer[here_at(id)], id) && accepted[id] != view[id] ->
            answer[here_at(id)] = answer[here_at(id)] | bit(id); told[here_at(id) * IDS + id] = accepted[id] }
    /* .. and a process that waits. */
    :: d_step { has(waiting & runs, id) && invited[id] == 0 && member(knocks_at[id]) && view[knocks_at[id]] > 0 &&
                epoch[knocks_at[id]] < EPOCHS && coordinator(knocks_at[id]) == knocks_at[id] &&
                start_view[here_at(knocks_at[id])] && knew(knocks_at[id], id) &&
                !has(join[here_at(knocks_at[id])], id) ->
            join[here_at(knocks_at[id])] = join[here_at(knocks_at[id])] | bit(id) }
    /* gf_view_collect: the coordinator has answers from a quorum. It proposes again what has the highest view,
     * else a new list. */
    :: atomic { member(id) && epoch[id] < EPOCHS && view[id] > 0 && coordinator(id) == id && proposal[here_at(id)] == 0 &&
                start_view[here_at(id)] && quorum(list[id], answer[here_at(id)], id) ->
            do /* of whom it has heard by now */
            :: k < IDS && has(answer[here_at(id)] & list[id], k) ->
                if
                :: here = here | bit(k);
                    best = (told[here_at(id) * IDS + k] > best -> told[here_at(id) * IDS + k] : best)
#ifndef LIVE
                :: k != id
#endif
                fi;
                k++
            :: k < IDS && !has(answer[here_at(id)] & list[id], k) -> k++
            :: k == IDS -> break
            od;
            if
            :: !quorum(list[id], here, id)
            :: quorum(list[id], here, id) && best > 0 ->
                proposal[here_at(id)] = proposal[AT(epoch[id], best)]; heads[here_at(id)] = heads[AT(epoch[id], best)];
                k = 0;
                do
                :: k < IDS -> admits[here_at(id) * IDS + k] = admits[AT(epoch[id], best) * IDS + k]; k++
                :: else -> break
                od
            :: quorum(list[id], here, id) && best == 0 && (here & ~leaves) != 0 ->
                next = here & ~leaves; k = 0;
                do /* no more come in than stay (that one less may, where the lowest id comes in, is not here) */
                :: k < IDS && comes(k, id) && !has(next, k) && count(next & ~here) < count(here & ~leaves) ->
                    if
                    :: next = next | bit(k); admits[here_at(id) * IDS + k] = incarnation[k]
#ifndef LIVE
                    :: true
#endif
                    fi;
                    k++
                :: k < IDS && !(comes(k, id) && !has(next, k) && count(next & ~here) < count(here & ~leaves)) -> k++
                :: k == IDS -> break
                od;
                proposal[here_at(id)] = next;
#ifdef UNTOLD
                fresh[here_at(id)] = 1;
#endif
                heads[here_at(id)] = (has(next, id) -> id : lowest(next & here)) /* never one that comes in */
            :: quorum(list[id], here, id) && best == 0 && (here & ~leaves) == 0
            fi;
            printf("%d proposes %d in view %d, has heard %d, accepted %d\n", id, proposal[here_at(id)], view[id], here, best);
            k = 0; here = 0; best = 0; next = 0
        }
    /* gf_view_accept: the proposal of the promised view is accepted. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] > 0 && accepted[id] != view[id] && proposal[here_at(id)] != 0 ->
            accepted[id] = view[id]; accept[here_at(id)] = accept[here_at(id)] | bit(id);
            printf("%d accepts view %d\n", id, view[id]) }
    /* gf_view_commit: a quorum has accepted. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] > 0 && coordinator(id) == id && proposal[here_at(id)] != 0 &&
                !commit[here_at(id)] && quorum(list[id], accept[here_at(id)], id) ->
            commit[here_at(id)] = 1;
            printf("%d commits %d in view %d of epoch %d, accepted by %d\n", id, proposal[here_at(id)], view[id], epoch[id],
                   accept[here_at(id)]) }
    /* gf_view_begin_epoch: COMMIT comes over the connection to the coordinator of the promised view .. */
    :: d_step { member(id) && epoch[id] < EPOCHS && view[id] > 0 && commit[here_at(id)] ->
            next = proposal[here_at(id)]; head = heads[here_at(id)]; from = here_at(id); begin_epoch() }
    /* gf_view_note, gf_view_answer, gf_view_be_out: .. or from a member that has begun the next epoch, with
     * DO_VIEW_CHANGE or in answer to one; who is further behind, or whose member id was given to another process, is
     * out .. */
    :: d_step { member(id) && epoch[id] < EPOCHS && (ahead(0, id) || ahead(1, id) || ahead(2, id) || ahead(3, id)) ->
            k = (ahead(0, id) -> 0 : (ahead(1, id) -> 1 : (ahead(2, id) -> 2 : 3)));
            from = by[k]; head = first[k];
            next = (epoch[k] == epoch[id] + 1 && admits[from * IDS + id] == 0 -> list[k] : 0);
            begin_epoch() }
    /* gf_view_join, gf_view_commit: a process that a commit took in is told by any member that it comes to .. */
    :: d_step { unheard(id, knocks_at[id]) && invited[id] == 0 && has(runs & ~waiting, knocks_at[id]) &&
                may_tell(knocks_at[id]) -> invited[id] = by[knocks_at[id]] }
    /* gf_view_begin_epoch: .. and hears it. */
    :: d_step { has(waiting & runs, id) && invited[id] != 0 && commit[invited[id]] &&
                admits[invited[id] * IDS + id] == incarnation[id] ->
            waiting = waiting & ~bit(id); epoch[id] = invited[id] / (VIEWS + 1);
            next = proposal[invited[id]]; head = heads[invited[id]]; from = invited[id]; begin_epoch() }
    /* gf_view_lost, gf_view_join: a waiting process turns to another member: what was on its connection is gone. */
    :: d_step { has(waiting & runs, id) && may_turn(id) ->
            invited[id] = 0; knocks_at[id] = (knocks_at[id] + 1) % IDS; waits_no_more() }
    od
}

/* A crash loses everything. A process that was started anew has its member id and nothing else. */
proctype Faults() {
    byte id, k;
end:
    do
    :: crashes < CRASHES ->
        do :: id < IDS - 1 -> id++ :: break od;
        true;
        d_step {
            if
            :: has(runs, id) ->
                printf("%d crashes\n", id);
                crashes++; runs = runs & ~bit(id); waiting = waiting & ~bit(id); out = out & ~bit(id);
                leaves = leaves & ~bit(id); epoch[id] = 0; list[id] = 0; first[id] = 0; by[id] = 0; view[id] = 0;
                accepted[id] = 0; invited[id] = 0; waits_no_more();
                k = 0;
                do :: k <= EPOCHS -> history[id * (EPOCHS + 1) + k] = 0; k++ :: else -> break od;
                k = 0
            :: else
            fi;
            id = 0
        }
    :: restarts < RESTARTS && runs != ALL ->
        do :: id < IDS - 1 -> id++ :: break od;
        true;
        d_step {
            if
            :: !has(runs, id) ->
                printf("%d starts\n", id);
                restarts++; incarnation[id]++; knocks_at[id] = 0; runs = runs | bit(id); waiting = waiting | bit(id)
            :: else
            fi;
            id = 0
        }
    :: left < LEAVES ->
        do :: id < IDS - 1 -> id++ :: break od;
        true;
        d_step {
            if
            :: member(id) && !has(leaves, id) -> left++; leaves = leaves | bit(id); printf("%d leaves\n", id)
            :: else
            fi;
            id = 0
        }
    :: break
    od
}

init {
    byte i;
    atomic {
        chosen[0] = FIRST_LIST;
        do
        :: i < IDS ->
            if
            :: i < INIT -> list[i] = FIRST_LIST; first[i] = FIRST; history[i * (EPOCHS + 1)] = FIRST_LIST
            :: else
            fi;
            run Member(i);
            i++
        :: else -> break
        od;
        run Faults()
    }
}

#ifdef LIVE
/* A member uses an epoch whose members all run and stay, and nobody waits at its coordinator. Or too few are left for a
 * quorum, or all that are left leave. Or a bound is reached. */
#define uses(i) (!member(i) || epoch[i] == EPOCHS || (view[i] == VIEWS && suspects(i)) || \
                 (list[i] & live(i) & ~leaves) == 0 || \
                 (view[i] == 0 && (list[i] & (~live(i) | leaves)) == 0 && comers(coordinator(i)) == 0) || \
                 (!half(list[i], live(i)) && ((list[i] & live(i)) | ended(i)) != ALL))
#if IDS > 3
#define all_use (uses(0) && uses(1) && uses(2) && uses(3))
#elif IDS > 2
#define all_use (uses(0) && uses(1) && uses(2))
#else
#define all_use (uses(0) && uses(1))
#endif
#ifdef QUIET
active proctype Quiet() { timeout -> assert(all_use) }
#else
never { /* not: from some time on, always all_use */
again:
    do :: true :: !(all_use) -> goto accept_not od;
accept_not:
    true -> goto again
}
#endif
#endif
