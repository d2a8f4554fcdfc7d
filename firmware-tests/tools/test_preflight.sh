#!/bin/sh
# gf-check --preflight: a sound node and job are ok; each line fails, and says so by name, where what it looks at is ill.
. firmware-tests/support/shell.sh
run="$BUILD/gf-run" gf_check="$BUILD/gf-check" local=config/local.cfg
unset GF_RANK GF_WORLD GF_JOB GF_ADDRESS
# exits CODE COMMAND..: its output is in $scratch/out
exits() {
    code_=$1; shift
    timeout -k 5 100 "$@" >"$scratch/out" 2>&1; found_=$?
    [ $found_ -eq "$code_" ] || { echo "exit $found_, wanted $code_"; cat "$scratch/out"; return 1; }
}
# said STATE CHECK TEXT: a line of the report
said() { grep -Eq "^$1 +$2 .*$3" "$scratch/out" || { cat "$scratch/out"; return 1; }; }
# file NAME TEXT: a configuration
file() { printf '%s\n' "$2" >"$scratch/$1"; }
# alone NAME STATE CHECK TEXT CONFIGURATION [OPTION..]: of a process by itself; fails if the line does
alone() {
    name_=$1 state_=$2 line_=$3 text_=$4; file "$1.cfg" "$5"; shift 5
    wanted_=0; [ "$state_" != fail ] || wanted_=1
    check "$name_" exits $wanted_ "$gf_check" "$scratch/$name_.cfg" --preflight "$@"
    check "${name_}_is_said" said "$state_" "$line_" "$text_"
}
# A port below the ephemeral ones that is free right now, and one that a process holds until the test ends.
port=7$(( $$ % 900 + 100 ))

# ---- a sound node, a sound job ----
file sound.cfg "rendezvous = { address = \"127.0.0.1:$port\"; };"
check "a_sound_node" exits 0 "$gf_check" "$scratch/sound.cfg" --preflight
for line in launcher libraries link gpu footprint stack memlock "huge pages" control devices \
    descriptors ports limits memory; do
    check "it_has_a_line_of_$(echo "$line" | tr ' ' _)" said ok "$line" ""
done
check "alone_it_says_why_there_are_no_peers" said skip peers "started alone"
check "three_ranks" exits 0 "$run" -n 3 "$gf_check" $local --preflight
check "they_answer" said ok peers "3 of 3 ranks answered, on 1 node"
check "they_have_one_configuration" said ok configuration "$("$gf_check" $local | sed -n 's/^hash: //p')"
check "they_join_and_sum" said ok join "3 ranks joined .* sum over all of them is right"
check "one_rank_alone_in_its_job" exits 0 "$run" -n 1 "$gf_check" $local --preflight
file alone.cfg "job = { world = 1; world_max = 1; }; rendezvous = { address = \"127.0.0.1:$port\"; };"
check "a_job_that_stays_alone" exits 0 "$gf_check" "$scratch/alone.cfg" --preflight
check "is_looked_at_as_such" said ok launcher "a world of 1\$"
check "a_job_that_may_grow" exits 0 "$run" -n 2 --max 3 "$gf_check" $local --preflight
check "is_looked_at_as_that" said ok launcher "rank 0 of 2, at most 3\$"
check "whoever_comes_in_later" exits 1 env GF_RANK=2 GF_WORLD=2 GF_WORLD_MAX=3 "$gf_check" $local --preflight
check "has_none" grep -q "^gf-check: --preflight is for the ranks at the start" "$scratch/out"
file three.cfg 'job = { world = 3; };'
check "what_the_launcher_and_the_file_differ_in" exits 1 "$run" -n 2 "$gf_check" "$scratch/three.cfg" --preflight
check "gf_open_would_refuse" said fail footprint "job.world is 3 in the configuration, but the launcher that sets GF_RANK says 2 ranks"
check "json" exits 0 "$run" -n 2 --merge "$gf_check" $local --preflight --json
json_line='^{"rank":[01],"world":2,.*"result":"\(ok\|warn\)","lines":\[{.*}\]}$'
check "json_is_a_line_a_rank" [ "$(grep -c "$json_line" "$scratch/out")" -eq 2 ]
check "json_has_nothing_else" [ "$(wc -l <"$scratch/out")" -eq 2 ]
if command -v python3 >/dev/null; then
    check "json_is_json" python3 -c 'import json, sys
for line in open(sys.argv[1]):
    for row in json.loads(line)["lines"]: assert set(row) == {"check", "state", "text", "todo"}, row' "$scratch/out"
else skip "json_is_json" "there is no python3"; fi

# ---- a line at a time ----
insecure='rendezvous = { insecure = true; };'
alone unknown_transport fail link "gdr_copy.* is (not )?in this binary" \
    "$insecure link = { driver = \"ucx\"; transports = \"tcp,gdr_copy\"; };"
alone wrong_interface fail interface "there is no gfnone0 here; there are .*lo" 'link = { devices = "gfnone0"; };'
alone gpu_transports_alone fail link "none is for a network" 'link = { driver = "ucx"; transports = "cuda_copy"; };'
alone what_a_node_has_by_itself fail link '"posix" is for no network' \
    'link = { driver = "ucx"; transports = "posix,tcp"; };'
alone a_fabric_that_nobody_has fail link "rc.* is (not )?in this binary" 'link = { transports = "rc"; };'
head -c 64 /dev/urandom >"$scratch/key"
chmod 600 "$scratch/key"
alone a_key_and_no_trust ok link "sockets between nodes: there is a key_file" \
    "rendezvous = { key_file = \"$scratch/key\"; }; link = { transports = \"rc\"; };"
alone no_fabric ok link "sockets between nodes: no InfiniBand port is active here" 'link = { driver = "auto"; };'
alone sockets_by_name ok link "sockets between nodes: link.driver = tcp" 'link = { driver = "tcp"; };'
file few.cfg 'link = { streams = 8; };'
few() { (ulimit -n 1000 && exits 1 "$gf_check" "$scratch/$1" --preflight --world "$2" --local 1); }
check few_descriptors few few.cfg 200
check few_descriptors_is_said said fail descriptors "limit 1000; 1856 are needed: 8 streams to each of 199 ranks"
file two.cfg 'link = { devices = "lo,lo"; };'
few two.cfg 400
check a_stream_a_device_and_the_control_channel_count said fail descriptors \
    "limit 1000; 1262 are needed: 2 streams to each of 399 .*, 400 to coordinate, and 64"
alone devices_by_themselves ok devices 'link.devices = "(lo|[a-z0-9]*[0-9])"$' 'link = { devices = "lo"; };'
file list.cfg 'link = { devices = "lo;gfnone0"; };'
check "devices_by_place_in_the_node" exits 1 "$run" -n 2 --merge "$gf_check" "$scratch/list.cfg" --preflight
check "the_first_has_the_first" said ok interface "lo is up$"
check "the_second_has_the_second_which_is_not_there" said fail interface "rank 1 on .*: there is no gfnone0 here"
alone more_than_there_is fail limits "MiB of memory available, [0-9]+ are needed" \
    'exchange = { user_bytes = "64 GiB"; };' --local 4096
check "more_than_memory_is_said" said fail memory "it has"
alone behind_many_interfaces fail memory "it has" \
    'link = { devices = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s"; }; exchange = { user_bytes = "64 GiB"; };' --local 4096
check "not_tried_is_said_too" said skip join "started alone"
alone wrong_bind fail bind "10.99.99.99 is no address of this node" 'rendezvous = { bind = "10.99.99.99"; insecure = true; };'
alone missing_key_file fail control "gf-no-key" 'rendezvous = { key_file = "/nonexistent/gf-no-key"; };'
alone ephemeral_ports warn ports "gives to outgoing connections" \
    "rendezvous = { ports = \"$(awk '{print $1 + 100 "-" $1 + 200}' /proc/sys/net/ipv4/ip_local_port_range)\"; };"
if unshare -m true 2>/dev/null; then
    congested() { # NAME DRIVER: this kernel's is NAME
        file tcp.cfg "link = { driver = \"$2\"; };"; echo "$1" >"$scratch/control"
        # shellcheck disable=SC2016
        exits 0 unshare -m sh -c 'mount --bind "$0" /proc/sys/net/ipv4/tcp_congestion_control && exec "$@"' \
            "$scratch/control" "$gf_check" "$scratch/tcp.cfg" --preflight
    }
    check "congestion_control_is_bbr" congested bbr tcp
    check "tcp_is_warned" said warn congestion "bbr: .* falls to a tenth"
    check "and_told_what_to_set" grep -q -- "-> .*=cubic .or reno." "$scratch/out"
    check "congestion_control_is_cubic" congested cubic tcp
    check "all_is_well" said ok congestion "cubic"
    congested bbr ucx >/dev/null # it may not be in this binary
    check "bbr_without_tcp_is_nobodys" [ "$(grep -c congestion "$scratch/out")" -eq 0 ]
else skip "congestion_control_is_bbr" "needs a mount namespace"; fi
alone huge_pages "$(grep -Eq '\[(never|deny)\]' /sys/kernel/mm/transparent_hugepage/shmem_enabled 2>/dev/null && echo warn || echo ok)" \
    "huge pages" "shmem_enabled" 'link = { huge_pages = true; };'
alone no_gpu_asked_for ok gpu 'device.driver is "host"' 'device = { library = "/nonexistent/gf-no-cuda.so"; };'
fake=$BUILD/firmware-tests/fake/libcuda.so.1
# on_gpu NAME STATE TEXT SETTINGS [VARIABLE=VALUE]: the line of a GPU, of the CUDA driver without one
on_gpu() {
    name_=$1 state_=$2 text_=$3; file "$1.cfg" "device = { driver = \"cuda\"; $4 };"; shift 4
    wanted_=0; [ "$state_" != fail ] || wanted_=1
    check "$name_" exits $wanted_ env "$@" "$gf_check" "$scratch/$name_.cfg" --preflight
    check "${name_}_is_said" said "$state_" gpu "$text_"
}
if [ ! -f "$fake" ]; then
    on_gpu a_build_without_a_gpu_driver fail "not in this program" ''
elif [ ! -e "$BUILD/ops/element/cuda/gf_kernels.fatbin" ]; then
    on_gpu a_build_without_kernels fail "no GPU kernels" ''
else
    lib="library = \"$PWD/$fake\";"
    on_gpu no_gpu_driver fail "gf-no-cuda" 'library = "/nonexistent/gf-no-cuda.so";'
    on_gpu gpu_that_does_not_start fail "cuInit failed: .* .100.: no /dev/nvidia" "$lib" GF_FAKE_CUDA_FAIL=cuInit:1:100
    on_gpu gpu_without_fabric fail "start nvidia-fabricmanager" "$lib" GF_FAKE_CUDA_FAIL=cuInit:1:802
    on_gpu gpu_that_is_not_there fail "device.ordinal 5: this process sees 2 GPUs" "$lib ordinal = 5;"
    on_gpu gpu_too_old_for_the_kernels fail "is sm_70, kernels are for sm_80 and newer" "$lib" GF_FAKE_CUDA_SM=70
    on_gpu gpu_that_is_there ok \
        "Fake 1, number 1 of 2, driver for CUDA 13.0 .$PWD/$fake.; memory shared in a node: by descriptors" \
        "$lib ordinal = 1;"
    on_gpu gpu_whose_memory_is_not_shared ok "shared in a node: none, it has no descriptors" \
        "$lib" GF_FAKE_CUDA_NO_DESCRIPTORS=1
    on_gpu library_that_is_no_gpu_driver fail "has no cuGetProcAddress_v2" 'library = "libm.so.6";'
fi
UCX_RNDV_THRESH=1m "$gf_check" "$scratch/sound.cfg" --preflight >"$scratch/out"
check "ucx_variables_are_said" said warn environment "UCX_RNDV_THRESH"

file sound64.cfg "rendezvous = { address = \"127.0.0.1:$port\"; }; exchange = { user_bytes = \"64 MiB\"; };"
small_files() { (ulimit -f 2000; exec "$gf_check" "$scratch/sound64.cfg" --preflight) | cat; }
small_files >"$scratch/out"
check "files_that_are_too_small" said fail limits "ulimit -f"
small_stack() { (ulimit -s 48; exec "$gf_check" "$scratch/sound.cfg" --preflight); }
small_stack >"$scratch/out"
check "a_stack_that_gf_open_refuses" said fail stack "48 KiB; 64 KiB are needed"
tight() { (ulimit -v 60000; exec env GF_RANK=0 GF_WORLD=1 "$gf_check" "$1" --preflight >"$scratch/out" 2>&1); }
if tight "$scratch/sound.cfg"; then
    file long.cfg "rendezvous = { address = \"127.0.0.1:$port\"; }; trace = { records = 1048576; };" # 64 MiB
    check_not "a_join_without_memory" tight "$scratch/long.cfg"
    check "fails" said fail join "no memory for a rank's control region"
else skip "a_join_without_memory" "this build does not run in 60 MB"; fi
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null && setpriv --bounding-set=-ipc_lock true 2>/dev/null; then
    file rdma.cfg 'link = { driver = "ucx"; };'
    lock_limited() { (ulimit -l 64; exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$gf_check" "$@" --preflight); }
    lock_limited "$scratch/rdma.cfg" >"$scratch/out"
    check "memlock_below_what_rdma_registers" said fail memlock "limit 64 KiB, to be registered"
    locks() { [ "$(sed -n 's/.*with the network: \([0-9]*\) KiB$/\1/p' "$scratch/out")" -gt 81920 ]; }
    check "and_what_ucx_registers_itself" locks
    lock_limited "$scratch/sound.cfg" >"$scratch/out"
    check "memlock_that_nobody_needs" said ok memlock "sockets lock no memory"
else skip "memlock_below_what_rdma_registers" "needs root and setpriv"; fi
# Two cards by a sysfs made up, the first GPU at the bridge of the second and the second at that of the first.
node_made() { # COMMAND..: on it
    sys=$scratch/sys bridges=devices/pci0000:10
    mkdir -p "$sys/class/net" "$sys/bus/pci/devices"
    for card in 1/0/net/gfa 2/0/net/gfb; do
        mkdir -p "$sys/$bridges/$card"
        ln -sfn "../../$bridges/$card" "$sys/class/net/${card##*/}"
    done
    for gpu in 2/0000:fa:00.0 1/0000:fb:00.0; do
        mkdir -p "$sys/$bridges/$gpu"; echo 0x10de >"$sys/$bridges/$gpu/vendor"; echo 0x030200 >"$sys/$bridges/$gpu/class"
        ln -sfn "../../../$bridges/$gpu" "$sys/bus/pci/devices"
    done
    # shellcheck disable=SC2016
    unshare -nm sh -c 'ip link set lo up; ip link add gfa type veth peer name gfb
        ip addr add 10.77.0.1/24 dev gfa; ip addr add 10.78.0.2/24 dev gfb; ip link set gfa up; ip link set gfb up
        sleep 0.1; mount --bind "$0" /sys && exec timeout -k 5 100 "$@"' "$sys" "$@"
}
links_made() { unshare -nm ip link add gfa type veth peer name gfb 2>/dev/null; }
if links_made; then
    cards() { # DRIVER DEVICES: what preflight says of a node with two ranks
        echo "device = { driver = \"$1\"; };" >"$scratch/near.cfg"
        node_made "$gf_check" "$scratch/near.cfg" --preflight --local 2 >"$scratch/out" 2>&1
        said ok devices "link.devices = \"$2\"\$" || { cat "$scratch/out"; return 1; }
    }
    check "preflight_tells_the_card_of_each_gpu" cards cuda "gfb;gfa"
    check "and_deals_out_cards_where_there_is_no_gpu" cards host "gfa;gfb"
    many() { # COMMAND..: with 60 devices more
        # shellcheck disable=SC2016
        unshare -nm sh -c 'mount -t sysfs none /sys; ip link set lo up
            for i in $(seq 10 39); do
                echo "link add gf-long-name-$i type veth peer name gf-long-name-$((i + 30))"
            done | ip -batch - && exec "$@"' sh "$@" >"$scratch/out"
        listed=$(sed -n 's/.*there is no gfnone0 here; there are //p' "$scratch/out" | grep -o gf-long-name | wc -l)
        [ "$listed" -eq 60 ] ||
            { cat "$scratch/out"; return 1; }
    }
    file gone.cfg 'link = { devices = "gfnone0"; };'
    check "all_interfaces_are_listed" many "$gf_check" "$scratch/gone.cfg" --preflight
else skip "preflight_tells_the_card_of_each_gpu" "needs a network namespace with devices"; fi
if unshare -n true 2>/dev/null; then
    file far.cfg 'rendezvous = { address = "10.9.9.9:7117"; insecure = true; };'
    check "address_without_a_way" exits 1 unshare -n "$gf_check" "$scratch/far.cfg" --preflight
    check "it_says_so" said fail control "10.9.9.9:7117 cannot be reached: Network is unreachable"
    check "no_device_at_all" said skip devices "sysfs names no device for this link"
else skip "address_without_a_way" "needs a network namespace"; fi

# ---- a port that is taken: by a preflight that waits for a rank that never comes ----
file open.cfg "rendezvous = { address = \"127.0.0.1:$port\"; insecure = true; };"
GF_RANK=0 GF_WORLD=2 "$gf_check" "$scratch/open.cfg" --preflight --deadline 100 >"$scratch/holder" 2>&1 &
holder=$!
await 60 grep -q '^ok *control' "$scratch/holder"
check "a_control_port_that_is_taken" exits 1 "$gf_check" "$scratch/open.cfg" --preflight
check "it_is_named" said fail control "127.0.0.1:$port: bind failed: Address already in use"
alone taken_ports warn ports "rendezvous.ports $port-$port: 0 of 1 free, 2 needed" \
    "rendezvous = { address = \"127.0.0.1:1\"; ports = \"$port-$port\"; };"
kill $holder; wait $holder 2>/dev/null

# ---- ranks that do not fit together ----
file fp16.cfg 'exchange = { wire = "fp16"; };'
echo "# defaults" >"$scratch/default.cfg"
# on_rank_1 CODE CONFIGURATION SETTING..: rank 1 of 3 has another file, and another environment; $deadline: for the others
deadline=30
on_rank_1() {
    wanted_=$1 other_=$2; shift 2
    exits "$wanted_" "$run" -n 3 --merge sh -c "[ \$GF_RANK != 1 ] || { $*; exec $gf_check $other_ --preflight --deadline $deadline; }
        exec $gf_check $scratch/default.cfg --preflight --deadline $deadline"
}
# tools/README.md shows this, from a host that is called vm.
sample() {
    sed "s/ on $(uname -n) / on vm /" "$scratch/out" | grep -A 1 "^fail  configuration" >"$scratch/said"
    grep -A 1 "^fail  configuration" tools/README.md | diff - "$scratch/said"
}
check "another_configuration_on_one_rank" on_rank_1 1 "$scratch/fp16.cfg" :
check "the_rank_is_named" said fail configuration "1 rank has not .* rank 1 on .* against rank 0: exchange.wire fp16, not fp32"
check "the_readmes_sample_is_what_is_said" sample
check "once" [ "$(grep -c '^fail  configuration' "$scratch/out")" -eq 1 ]
check "and_nobody_joins" said skip join "not tried"
deadline=5 # rank 1 comes to nobody
check "a_failing_line_on_one_rank" on_rank_1 1 "$scratch/wrong_bind.cfg" :
check "that_rank_shows_it" said fail bind "rank 1 on .*: rendezvous.bind 10.99.99.99"
check "all_hear_of_it" said fail "all ranks" "something fails at rank 1\$"
check "a_rank_that_does_not_come" exits 1 "$run" -n 1 sh -c "GF_WORLD=2 exec $gf_check $local --preflight --deadline 1"
check "it_is_named_too" said fail peers "1 of 2 ranks answered within 1 s; missing: rank 1"
check "rank_0_that_is_not_there" exits 1 env GF_RANK=1 GF_WORLD=2 GF_ADDRESS=127.0.0.1:1 "$gf_check" $local --preflight --deadline 1
check "it_is_said_where" said fail control "rank 0: tried .* times: .*127.0.0.1:1.*: .*Connection refused"
# By hand, so that nobody ends rank 0 because the other one has ended.
other_world() {
    GF_RANK=1 GF_WORLD=4 "$gf_check" $local --preflight --deadline 30 >"$scratch/other" 2>&1 & other=$!
    exits 1 env GF_RANK=0 GF_WORLD=3 "$gf_check" $local --preflight --deadline 30; code_=$?
    wait $other && { echo "rank 1 ended with 0"; return 1; }
    return $code_
}
GF_ADDRESS=127.0.0.1:$port; export GF_ADDRESS
check "another_world_on_one_rank" other_world
unset GF_ADDRESS
check "both_worlds_are_named" said fail peers "rejected: .*world 3 at rank 0, 4 at rank 1"
check "at_the_other_too" grep -q "^fail  peers .*world 3 at rank 0, 4 at rank 1" "$scratch/other"
check "another_tensor_table_on_one_rank" exits 1 "$run" -n 2 --merge sh -c "[ \$GF_RANK = 0 ] ||
    exec $gf_check $local --preflight --deadline 30 --tensors config/models/nin.cfg; exec $gf_check $local --preflight --deadline 30"
check "the_join_finds_it" said fail join "GF_ERR_MISMATCH: .*tensor tables differ"

# ---- the command line ----
check "json_without_preflight" exits 2 "$gf_check" $local --json
check "deadline_of_0" exits 2 "$gf_check" $local --preflight --deadline 0
check "world_under_a_launcher" exits 2 "$run" -n 1 "$gf_check" $local --preflight --world 4
check "a_file_that_is_not_there" exits 1 "$gf_check" "$scratch/none" --preflight
finish
