#!/bin/sh
# suite: long
# Steps over UCX's rc_verbs and ud_verbs, on a device that verbs_fabric.h makes of shared memory. No card, no driver of the
# kernel: what a card does by itself (mlx5's direct verbs, dc, GPUs) is not run.
. firmware-tests/support/shell.sh
unset GF_QUIET MAKEFLAGS MAKELEVEL # as by hand
export GF_VERBS_REPORT=1
made=$scratch/verbs

builds() {
    mkdir "$made"
    cp -Rp "$BUILD"/*.used "$BUILD/lib" "$BUILD/ops" "$BUILD/drivers" "$BUILD/config" "$BUILD/tools" "$made"
    make -s -j2 WERROR=1 BUILD="$made" UCX_IB=1 FAKE_VERBS=1 "$made/gf-check" "$made/gf-run" "$made/gf-train" \
        "$made/gf-perf" >"$made.log" 2>&1 || { cat "$made.log"; return 1; }
}
if ! make -s UCX_IB=1 flags >"$scratch/out" 2>&1 || [ ! -e /usr/include/infiniband/verbs.h ]; then
    missing=$(sed -n 's/.*packages //p' "$scratch/out")
    if [ -n "$missing" ] || [ ! -e /usr/include/infiniband/verbs.h ]; then
        skip "it_links_with_a_device" "not installed: ${missing:-infiniband/verbs.h}"
    else not_ok "it_links_with_a_device" "$(tail -n 1 "$scratch/out")"; fi
    finish
fi
check "it_links_with_a_device" builds
[ -x "$made/gf-perf" ] || finish

# config TRANSPORT DRIVER LINES [GROUPS]: $scratch/TRANSPORT.cfg; sockets: nothing of UCX
config() {
    case $1 in sockets) transports= ;; *) transports="transports = \"$1\";" ;; esac
    echo "link = { private_memory = true; driver = \"$2\"; $transports $3 }; ${4:-}" >"$scratch/$1.cfg"
}
device='devices = "fake0:1";'
config sockets tcp ""
for name in rc ud rc_verbs ud_verbs; do config "$name" ucx "$device"; done
for name in rc_v ib "rc_verbs,ud_verbs"; do config "$name" auto ""; done
# ranks LABEL N TOOL ARGUMENTS..: each on a fabric of its own; what they print is in $scratch/LABEL
ranks() {
    label=$1 count=$2 tool=$3; shift 3
    GF_VERBS=$scratch/$label.fabric timeout 100 "$made/gf-run" -n "$count" "$made/$tool" "$@" >"$scratch/$label" 2>&1
    code=$?
    rm -f "$scratch/$label.fabric"
    return $code
}
# train LABEL N TRANSPORT ARGUMENTS..
train() {
    train_label=$1 train_count=$2 train_config=$scratch/$3.cfg; shift 3
    ranks "$train_label" "$train_count" gf-train $small --config "$train_config" "$@"
}
weights() { sed -n 's/^weights *\([0-9a-f]*\),.*/\1/p' "$scratch/$1"; }
says() { grep -q "$2" "$scratch/$1" || { cat "$scratch/$1"; return 1; }; }
# same LABEL AS: both ended with these weights
same() {
    [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || { cat "$scratch/$1"; return 1; }
}
# counted LABEL NAME: what the device counted of it, in all ranks
counted() { sed -n "s/.*verbs: .*$2 \([0-9]*\).*/\1/p" "$scratch/$1" | awk '{sum += $1} END {print sum + 0}'; }
more() { [ "$(counted "$1" "$2")" -gt "$3" ] || { cat "$scratch/$1"; return 1; }; }

# A port that is away for longer than UCX waits by itself (30 s): beside all that follows.
(
    GF_VERBS_FAULT=port_down=300,port_up=33000 train late 2 ud --steps 100 --set exchange.timeout=120
    echo $? >"$scratch/late.code"
) &
late=$!

opens() { # gf-check's look at the link
    GF_VERBS=$scratch/list "$made/gf-check" "$scratch/$1.cfg" --preflight >"$scratch/out" 2>&1
    grep -Eq "^ok +link " "$scratch/out" || { cat "$scratch/out"; return 1; }
}
for way in rc ud rc_v; do check "gf_check_opens_$way" opens $way; done
for count in 2 4; do
    check "sockets_run_with_$count" train sockets$count $count sockets --steps 100
    for way in ud rc; do
        check "${way}_runs_with_$count" train $way$count $count $way --steps 100
        check "${way}_has_the_bits_of_sockets_with_$count" same $way$count sockets$count
    done
done
for way in rc_v ib "rc_verbs,ud_verbs" ud_verbs; do
    check "${way}_runs" train other 2 "$way" --steps 100
    check "${way}_has_the_bits_of_sockets" same other sockets2
done
GF_DEBUG=info check "a_named_transport_is_enough_for_auto" train other 2 rc_v --steps 10
check "which_opens_ucx" says other 'open over ucx'
config ib ucx ""
sed -i 's/transports = "ib";//' "$scratch/ib.cfg"
GF_DEBUG=info check "ucx_by_itself_takes_what_there_is" train other 2 ib --steps 100
check "over_ucx" says other 'transports ib, devices any'
check "to_the_bits_of_sockets" same other sockets2
for way in ud rc; do
    check "sums_of_all_sizes_over_$way" ranks sums 2 gf-perf -b 8 -e 4M -f 8 --config "$scratch/$way.cfg"
    check "are_right_over_$way" says sums 'Out of bounds values : 0 OK'
done
check "large_messages_over_rc_are_read_from_memory" more sums reads 0
for way in ud rc; do
    GF_VERBS_ETHERNET=1 check "${way}_runs_over_ethernet" train ethernet 2 $way --steps 100
    check "${way}_has_the_bits_over_ethernet" same ethernet sockets2
done

# Memory is registered in the first steps alone.
for way in ud rc; do
    check "a_short_run_over_$way" train short 2 $way --steps 20
    check "a_long_run_over_$way" train long 2 $way --steps 600
    check "registers_over_$way" more short registrations 0
    check "registers_no_more_over_$way" [ "$(counted short registrations)" -eq "$(counted long registrations)" ]
done

# What is lost and comes back changes no bit.
GF_VERBS_FAULT=drop=40 check "datagrams_are_lost" train lost 2 ud --steps 100
check "they_were_lost" more lost dropped 20
check "which_changes_no_bit" same lost sockets2
for way in ud rc; do
    GF_VERBS_FAULT=port_down=100,port_up=300 check "a_port_is_away_over_$way" train away 2 $way --steps 100
    check "which_changes_no_bit_over_$way" same away sockets2
done

# What is lost for good ends the step, and who does not answer is named. 1: said; more: a signal, or UCX's end of the
# process.
fails() { "$@"; [ $? -eq 1 ] || { cat "$scratch/$2"; return 1; }; }
for way in ud rc; do
    UCX_UD_TIMEOUT=2s UCX_RC_TIMEOUT=50ms GF_VERBS_FAULT=port_down=100 check "a_port_is_gone_over_$way" \
        fails train gone 2 $way --steps 100 --set exchange.timeout=60
    check "who_no_longer_answers_is_named_over_$way" says gone \
        'rank [01] no longer answers rank [01] over devices "fake0:1".*GF_ERR_LINK'
done
GF_VERBS_FAULT=port_down=100 check "a_deadline_holds" fails train gone 2 ud --steps 100 --set exchange.timeout=3
check "and_is_said" says gone 'messages of rank [01] do not reach rank [01]: it lacks one that was sent.*GF_ERR_TIMEOUT'
GF_VERBS_FAULT=qp_error=100 check "a_queue_pair_fails" fails train pair 2 rc --steps 100 --set exchange.timeout=60
check "and_its_peer_is_named" says pair 'rank [01] .*rank [01].*GF_ERR_LINK'

# killed LABEL TRANSPORT ARGUMENTS..: rank 2 of 3, when steps are under way
killed() {
    label=$1; shift
    rm -f "$scratch/$label.state".*
    train "$label" 3 "$@" --steps 1000000 --checkpoint "$scratch/$label.state" --checkpoint-every 5 &
    job=$!
    until [ -s "$scratch/$label.state.2" ]; do
        kill -0 $job 2>/dev/null || { cat "$scratch/$label"; return 1; }
        sleep 0.1
    done
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2>/dev/null)" = gf-train ] &&
            grep -qz "^GF_VERBS=$scratch/$label.fabric$" "$process/environ" &&
            grep -qz '^GF_RANK=2$' "$process/environ" && kill -9 "${process#/proc/}"
    done 2>/dev/null
    wait $job; code=$?
    [ $code -eq 137 ] || [ $code -eq 1 ] # the killed rank's, or of one that said so before gf-run saw it
}
for way in ud rc; do
    check "a_rank_is_killed_over_$way" killed dead $way
    check "it_is_named_over_$way" says dead 'error: rank [01]: rank 2 died'
done

# A key, and who trusts the fabric.
head -c 32 /dev/urandom >"$scratch/key" && chmod 600 "$scratch/key"
key="rendezvous = { key_file = \"$scratch/key\"; };"
config rc ucx "$device" "$key"
check_not "with_a_key_the_fabric_must_be_trusted" train keyed 2 rc --steps 10
check "which_is_said" says keyed 'link.trusted_fabric = true'
config rc ucx "$device trusted_fabric = true;" "$key"
check "a_trusted_one_runs" train keyed 2 rc --steps 10
config rc auto "" "$key"
GF_DEBUG=info check "auto_takes_sockets" train keyed 2 rc --steps 10
check "and_says_why" says keyed 'sockets between nodes: there is a key_file'
config rc ucx "$device"

check_not "rc_verbs_alone_cannot_connect" train alone 2 rc_verbs --steps 10
check "and_what_it_lacks_is_said" says alone 'rc and dc connect over ud'
config ud ucx 'devices = "fake7:1";'
check_not "another_is_not_there" train named 2 ud --steps 10
check "and_is_named" says named 'fake7'

wait $late
check "a_port_that_is_away_for_33_s" [ "$(cat "$scratch/late.code")" = 0 ]
check "changes_no_bit_either" same late sockets2
skip "mlx5_dc_and_gpus" "they need a card"
finish
