#!/bin/sh
# gf-plan as a user runs it: tables, files, the published figures, advice, and what it refuses.
. firmware-tests/support/shell.sh
plan="$BUILD/gf-plan"

# Small ones of everything: a case takes milliseconds.
cat >"$scratch/small.cfg" <<'EOF'
tensors = ( { name = "fc"; shape = [512, 64]; flops = [65536, 131072]; }, { name = "fc.bias"; shape = [64]; flags = ["dense"]; },
            { name = "conv"; shape = [16, 3, 3, 3]; flops = [500000, 500000]; } );
EOF
sed 's/nodes = 8/nodes = 4/; s/name = "plain"/name = "a \\"<\&> name"/' config/clusters/plain.cfg >"$scratch/cluster.cfg"
small="--model $scratch/small.cfg --cluster $scratch/cluster.cfg"

# ---- tables ----
check a_table_is_printed sh -c "$plan $small --gpus 1,4 --csv $scratch/a.csv --svg $scratch/a.svg >$scratch/table"
check every_mode_has_its_row sh -c "for m in server tree ring fp16 overlap lazy sparse; do grep -Eq \"^ +4 \$m +[0-9.]+ \" $scratch/table || exit 1; done"
check one_gpu_is_never_sped_up sh -c "awk '\$1 == 1 && \$3 != \"-\" && (\$5 > 1 || \$5 < 0.5) {bad = 1} END {exit bad}' $scratch/table"
check sparse_chunks_are_said_to_be_synthetic grep -q synthetic "$scratch/table"
columns_are_whole() {
    sed 's/"[^,]*"/x/g' "$scratch/a.csv" |
        awk -F, 'NF != 15 {exit 1} NR > 1 && ($4 < 1 || $5 <= 0 || $8 > 1 || $9 < 0) {exit 1} END {exit NR < 15}'
}
check csv_has_its_columns_in_every_line columns_are_whole
check csv_quotes_names grep -q '^"a ""<&> name","small",ring,4,' "$scratch/a.csv"
check csv_without_nan sh -c "! grep -Eiq 'nan|inf' $scratch/a.csv"
check svg_is_whole sh -c "head -c 4 $scratch/a.svg | grep -q '<svg' && tail -n 1 $scratch/a.svg | grep -q '^</svg>\$'"
check svg_escapes_names grep -q 'a "&lt;&amp;&gt; name' "$scratch/a.svg"
# ---- what nobody said ----
$plan --cluster h200 --model "$scratch/small.cfg" --gpus 1,96 --modes lazy,hierarchy >"$scratch/out" 2>"$scratch/err"
check a_cluster_is_found_by_its_name grep -q '^cluster   h200: 8 nodes of 8 GPUs' "$scratch/out"
check one_sample_a_gpu_is_said same \
    "gf-plan: neither --batch nor cluster h200 says how many samples of small a GPU takes: 1" \
    "$(head -n 1 "$scratch/err")"
check more_gpus_than_there_are_is_said same \
    "gf-plan: 96 GPUs are more than the 8 x 8 of cluster h200: as if it had more nodes" "$(sed 1d "$scratch/err")"
check dashes_are_explained grep -q '^    -  .*hierarchy needs two GPUs a node or more' "$scratch/out"
$plan --cluster h200 --model "$scratch/small.cfg" --gpus 64 --modes lazy --batch 8 >"$scratch/out" 2>"$scratch/err"
check who_says_it_all_is_told_nothing [ ! -s "$scratch/err" ]
check nor_is_there_a_dash_to_explain sh -c "! grep -q hierarchy $scratch/out"
check_not a_name_that_nobody_knows_is_refused $plan --cluster h2000 --model "$scratch/small.cfg" --gpus 1
if command -v python3 >/dev/null; then
    strange=$scratch/$(printf '\303\274]]>\377\001').cfg
    cp "$scratch/small.cfg" "$strange"
    $plan --cluster "$scratch/cluster.cfg" --model "$strange" --gpus 1 --modes ring --svg "$scratch/b.svg" >/dev/null
    check svg_is_xml_whatever_the_name python3 -c 'import sys, xml.dom.minidom as m
assert "Training \u00fc]]>\\xff\\x01 on" in m.parse(sys.argv[1]).toxml().replace("&gt;", ">")' "$scratch/b.svg"
else skip svg_is_xml_whatever_the_name "there is no python3"; fi
check svg_without_nan sh -c "! grep -Eiq '\"[^\"]*(nan|inf)[^\"]*\"' $scratch/a.svg"
check svg_tags_close sh -c "[ \$(grep -o '<text' $scratch/a.svg | wc -l) -eq \$(grep -o '</text>' $scratch/a.svg | wc -l) ] && [ \$(grep -o '<polyline' $scratch/a.svg | wc -l) -eq 16 ]"
check svg_scales_and_says_what_is_dashed sh -c "grep -q 'viewBox' $scratch/a.svg && grep -q '>ideal: ' $scratch/a.svg"
check svg_names_each_line_in_both_halves sh -c "[ \$(grep -c '<text.*>sparse</text>' $scratch/a.svg) -eq 2 ]"
check the_same_again_is_the_same sh -c "$plan $small --gpus 1,4 | cmp - $scratch/table"
$plan $small --gpus 4 --modes ring,lazy --cache "$scratch/cache" >"$scratch/first"
check a_cache_holds_a_line_a_row sh -c "[ \$(wc -l <$scratch/cache) -eq 2 ]"
check a_cached_table_is_the_same sh -c "$plan $small --gpus 4 --modes ring,lazy --cache $scratch/cache | cmp - $scratch/first"
check what_differs_is_not_taken_from_the_cache sh -c "$plan $small --gpus 4 --modes ring,lazy --set \"network_latency = 9e-4\" --cache $scratch/cache >$scratch/slow; ! cmp -s $scratch/slow $scratch/first && [ \$(wc -l <$scratch/cache) -eq 4 ]"
echo 'exchange = { algorithm = "halving"; wire = "bf16"; };' >"$scratch/exchange.cfg"
check a_configuration_takes_the_place_of_modes sh -c "$plan $small --gpus 4 --config $scratch/exchange.cfg --compute-ms 20 | grep -Eq '^ +4 overlap +2[0-9]\.'"
other="--cluster $scratch/cluster.cfg --gpus 4 --config $scratch/exchange.cfg --cache $scratch/others"
sed 's/name = "fc";/& type = "fp16";/' "$scratch/small.cfg" >"$scratch/half.cfg"
for file in small half; do $plan $other --model "$scratch/$file.cfg" >"$scratch/out"; done
check nor_a_row_of_other_types [ "$(wc -l <"$scratch/others")" -eq 2 ]
{ echo 'activation_bytes = 100000000000L;'; cat "$scratch/small.cfg"; } >"$scratch/wide.cfg"
for file in small wide; do
    $plan $other --model "$scratch/$file.cfg" --set 'gpu_memory = 1e11' --batch 1 >"$scratch/out" 2>"$scratch/err"
done
check nor_one_that_fitted grep -q 'GB too much' "$scratch/err"
echo 'exchange = { algorithm = "tree"; wire = "bf16"; };' >"$scratch/tree.cfg"
for file in exchange tree; do
    $plan $small --gpus 4 --compute-ms 20 --config "$scratch/$file.cfg" --algorithm tree >"$scratch/$file.told"
done
check whose_algorithm_gives_way_to_the_options cmp "$scratch/exchange.told" "$scratch/tree.told"
for algorithm in auto hierarchy ring; do
    $plan $small --gpus 8 --modes lazy --set "gpus_per_node = 2" --algorithm $algorithm >"$scratch/$algorithm.two"
done
check auto_is_hierarchy_on_nodes_of_two cmp "$scratch/auto.two" "$scratch/hierarchy.two"
check auto_is_no_ring_on_nodes_of_two sh -c "! cmp -s $scratch/auto.two $scratch/ring.two"

# ---- the published figures: the same code with small models ----
mkdir "$scratch/models"
cp -r config/clusters "$scratch"
for m in alexnet resnet50 googlenet nin; do
    echo 'tensors = ( { name = "w"; shape = [40]; flops = [1000, 2000]; } );' >"$scratch/models/$m.cfg"
done
check paper_runs sh -c "GF_DATA_DIR=$scratch $plan --paper --brief >$scratch/paper"
for figure in 410.2x 434.1x 47x 39x 20x 23x 2.5x 2.6x 2.1x '1.5 min' '7.3 min' '18.5 %' '26.2 %'; do
    check "paper_prints_$(echo "$figure" | tr ' ' _)" grep -qF " $figure " "$scratch/paper"
done
check paper_says_what_was_calibrated grep -q 'fitted' "$scratch/paper"
check paper_has_server_against_tree sh -c "grep -Eq '^ +128 +[0-9.]+ +[0-9.]+ ' $scratch/paper"

# ---- clusters and models of today ----
h200="--cluster config/clusters/h200.cfg"
lm="--model $scratch/lm.cfg"
shown() { $plan $h200 "$@" --show; }
shown_again() { shown >"$scratch/shown.cfg" && $plan --cluster "$scratch/shown.cfg" --show | cmp - "$scratch/shown.cfg"; }
check a_cluster_is_shown_as_a_file shown_again
shown --set 'rails = false; op_cost = 4e-6' >"$scratch/set"
check keys_are_set_over_a_file grep -q '^    op_cost = 4e-06; ' "$scratch/set"
$plan --transformer 2,64,4,1000,32 >"$scratch/lm.cfg"
$BUILD/gf-check "$scratch/lm.cfg" >"$scratch/checked"
check a_transformer_is_generated grep -q ' 28 tensors, 166144 elements' "$scratch/checked"
$plan $h200 $lm --gpus 16 --modes lazy >"$scratch/lm"
check tokens_and_mfu_are_printed grep -Eq 'tokens/s .* MFU %' "$scratch/lm"
refused a_row_that_does_not_fit 'GB too much' $plan $h200 $lm --gpus 4 --modes lazy,sparse \
    --set 'gpu_memory = 17e6' --csv "$scratch/part.csv" --svg "$scratch/part.svg"
check leaves_the_others_as_csv [ "$(wc -l <"$scratch/part.csv")" -eq 2 ]
check and_a_whole_picture grep -q '^.*</svg>$' "$scratch/part.svg"
$plan $small --gpus 2,4 --modes lazy --progress >/dev/null 2>"$scratch/progress"
check progress_is_said_where_asked_for grep -q '2 of 2 rows, about 0:00 left' "$scratch/progress"
$plan $small --gpus 2,4 --modes lazy >/dev/null 2>"$scratch/progress"
check and_not_to_a_file [ ! -s "$scratch/progress" ]

unread() { { timeout 100 $plan "$@"; echo $? >"$scratch/code"; } 2>/dev/null | true; same 1 "$(cat "$scratch/code")"; }
check a_table_that_nobody_reads_ends unread --all --cache "$scratch/unread"

# ---- advice ----
check advice_is_given sh -c "$plan $small --advise --gpus 4 --write $scratch/best.cfg --progress >$scratch/advice \\
    2>$scratch/progress"
# Row n of m: m grows where sparse steps are worth another search, and the last row is m.
check advice_says_how_far_it_is awk '!/^gf-plan: [0-9]+ of [0-9]+ rows, about [0-9]+:[0-9]+ left$/ { exit 1 }
    $2 != NR || $4 < NR { exit 1 }  { all = $4 }  END { exit !(NR > 10 && all == NR) }' "$scratch/progress"
check advice_is_silent_where_it_takes_no_time same "" "$($plan $small --advise --gpus 4 2>&1 >/dev/null)"
check and_where_it_shall_be same "" "$($plan $small --advise --gpus 4 --progress --quiet 2>&1)"
check advice_is_a_valid_configuration sh -c "$BUILD/gf-check $scratch/best.cfg >/dev/null"
check advice_on_sparse_steps_is_valid sh -c "$plan --model config/models/nin.cfg --cluster $scratch/cluster.cfg --set \"network_bandwidth = 2e6\" --advise --gpus 4 --write $scratch/sparse.cfg >/dev/null && grep -q keep_share $scratch/sparse.cfg && $BUILD/gf-check $scratch/sparse.cfg >/dev/null"
check fully_connected_layers_may_be_split sh -c "grep -Eq '^  fc +[0-9.]+ +[0-9.]+ +model' $scratch/advice"
check convolutions_stay_data_parallel sh -c "grep -Eq '^  conv +[0-9.]+ +[0-9.]+ +data' $scratch/advice"
advised() { timeout 100 $plan $h200 $lm --advise --gpus 4 --set "gpu_memory = $1"; }
advised 17e6 >"$scratch/advised" 2>"$scratch/err"
check what_does_not_fit_is_not_advised grep -q 'keep 0.500  *does not fit' "$scratch/advised"
refused no_advice_where_nothing_fits 'GB too much' $plan $h200 $lm --advise --gpus 4 --set 'gpu_memory = 1e6'
check the_learning_rate_scales grep -q 'base x batch / 256' "$scratch/advice"

$plan $h200 $lm --advise --gpus 4 >"$scratch/advised"
check a_language_model_has_tokens grep -Eq '^ +a GPU .* tokens/s' "$scratch/advised"
check and_no_rate_of_images sh -c "! grep -q 'batch / 256' $scratch/advised"
# Rows of larger batches that the cache has no room for.
$plan $small --advise --gpus 4 --cache "$scratch/advice.cache" >/dev/null
lines=$(wc -l <"$scratch/advice.cache")
sed -i "$((lines - 1)),\$d" "$scratch/advice.cache"
if command -v prlimit >/dev/null; then
    refused a_cache_that_is_full 'cannot write' prlimit --fsize="$(wc -c <"$scratch/advice.cache")" \
        $plan $small --advise --gpus 4 --cache "$scratch/advice.cache"
else skip a_cache_that_is_full "there is no prlimit"; fi

# ---- what is refused ----
cluster_with() { sed "$1" config/clusters/plain.cfg >"$scratch/bad.cfg"; }
refused no_cluster 'No such file' $plan --cluster "$scratch/none.cfg"
refused no_model 'No such file' $plan --model "$scratch/none.cfg"
refused gpus_of_0 'from 1 to' $plan $small --gpus 0
refused gpus_of_words 'whole numbers' $plan $small --gpus 1,many
refused gpus_beyond 'from 1 to 8192' $plan $small --gpus 9000
refused unknown_mode 'server, tree' $plan $small --modes quick
refused unknown_algorithm 'halving' $plan $small --algorithm quick
refused a_mode_twice 'each once' $plan $small --modes ring,ring
refused paper_and_gpus 'stands alone' $plan --paper --gpus 8
for option in '--batch 8' '--keep 0.1' '--model x' '--show'; do
    refused "paper_and_${option%% *}" 'stands alone' $plan --paper $option
done
for option in '--modes ring' '--keep 0.1' '--algorithm ring' "--config $scratch/best.cfg"; do
    refused "advice_and_${option%% *}" 'no table' $plan $small --advise --gpus 4 $option
    check "advice_and_${option%% *}_is_a_wrong_command_line" [ $code_ -eq 2 ]
done
refused two_at_once 'exclude' $plan --paper --all
for option in '--fuse 4M' '--slice 64K' '--keep 0.1' '--modes ring'; do
    refused "a_configuration_and_${option%% *}" 'says its own' $plan $small --config "$scratch/best.cfg" $option
done
refused brief_alone 'goes with --paper' $plan $small --brief
refused write_alone 'goes with' $plan $small --write "$scratch/x"
refused fuse_of_0 'a size' $plan $small --fuse 0
echo 'device = { driver = "cuda"; };' >"$scratch/cuda.cfg"
on_gpus="$plan $small --gpus 2 --config $scratch/cuda.cfg"
refused gpus_of_a_cluster_that_has_none 'set host_bandwidth or gpu_direct' $on_gpus
check and_with_one_they_are_planned sh -c "$on_gpus --set 'host_bandwidth = 2e10' >/dev/null"
refused unwritable 'none/x.csv: open: No such file' $plan $small --gpus 1 --csv "$scratch/none/x.csv"
# 40,656 parameters: 10 bytes of each, gradients, and 4 bytes of what enters layers times 1,000 images.
refused what_does_not_fit 'has 0.001 GB and this wants .* GB too much .the library' $plan $small \
    --set 'gpu_memory = 1e6' --gpus 2 --batch 1000
refused a_transformer_without_heads 'layers,width,heads,vocabulary' $plan --transformer 12,768
refused heads_that_do_not_divide '5 heads do not divide' $plan --transformer 1,64,5,100
refused a_layer_of_too_many_flops 'more than 2.48 FLOPs' $plan --transformer 1,8192,64,1000,87000 --llama
refused a_number_too_many 'more than 5 numbers' $plan --transformer 1,64,4,100,32,7
refused no_such_key_to_set 'did you mean rails' $plan $h200 --show --set 'rail = true'
check which_is_a_wrong_command_line sh -c "$plan $h200 --show --set 'rail = true' 2>/dev/null; [ \$? -eq 2 ]"
refused rails_of_one_card 'nics_per_node is 1' $plan $h200 --show --set 'nics_per_node = 1'
refused cards_that_do_not_divide 'must divide gpus_per_node' $plan $h200 --show --set 'nics_per_node = 3'
refused half_of_stragglers 'straggler_tail is missing' $plan $small --show --set 'straggler_scale = 0.1'
refused oversubscribed_without_leaves 'leaf_nodes is missing' $plan $small --show --set 'oversubscription = 4.0'
while IFS='|' read -r name change why; do
    cluster_with "$change"
    refused "$name" "$why" $plan --cluster "$scratch/bad.cfg"
done <<'END'
nodes_of_0|s/nodes = 8/nodes = 0/|bad.cfg:[0-9]*: nodes must be a whole number from 1
negative_latency|s/network_latency = .*;/network_latency = -1.0;/|network_latency must be
unknown_key|s/network_bandwidth/netork_bandwidth/|unknown key netork_bandwidth; did you mean network_bandwidth?
missing_key|/network_bandwidth/d|network_bandwidth is missing
a_word_for_a_number|s/network_bandwidth = .*;/network_bandwidth = "fast";/|network_bandwidth must be a number
no_bandwidth_in_the_node|s/gpus_per_node = 1/gpus_per_node = 4/; /node_bandwidth/d|node_bandwidth is missing
END
cluster_with '/gpu_flops/d'
refused no_rate 'neither a rate' $plan --cluster "$scratch/bad.cfg" --model config/models/vgg16.cfg
sed 's/flops = [^;]*;//' "$scratch/small.cfg" >"$scratch/noflops.cfg"
refused a_model_without_flops 'no flops' $plan --model "$scratch/noflops.cfg"
for shipped in config/clusters/*.cfg; do
    check "shipped_$(basename "$shipped" .cfg)_is_valid" sh -c "$plan --cluster $shipped --model $scratch/small.cfg --gpus 2 --modes lazy >/dev/null"
done
finish
