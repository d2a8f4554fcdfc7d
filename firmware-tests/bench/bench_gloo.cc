// Gloo's allreduce over tcp: c++ -O3 bench_gloo.cc -lgloo -pthread; options in bench_peer.h, and
//     -w WORLD -r RANK -d FOLDER (empty, shared) -h ADDRESS (own)  -a ring|ring_chunked|halving_doubling|bcube
#include <memory>
#include <string>
#include <vector>

#include <gloo/algorithm.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "firmware-tests/bench/bench_peer.h"

namespace
{

struct Peer : bench_peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
};

int given_world = 1, given_rank = 0;
std::string given_folder, given_address = "127.0.0.1", given_algorithm = "ring";

void own_option(int letter, const char *value)
{
    switch (letter) {
    case 'w': given_world = atoi(value); break;
    case 'r': given_rank = atoi(value); break;
    case 'd': given_folder = value; break;
    case 'h': given_address = value; break;
    case 'a': given_algorithm = value; break;
    }
}

// Its older interface binds an algorithm to a pointer and a count; that binding is kept for the next call.
void bound_sum(Peer *peer, float *data, size_t elem_count)
{
    static std::vector<std::pair<std::pair<float *, size_t>, std::unique_ptr<gloo::Algorithm>>>
        bound;
    for (auto &one : bound)
        if (one.first == std::make_pair(data, elem_count)) return one.second->run();
    std::vector<float *> pointers{data};
    std::unique_ptr<gloo::Algorithm> made;
    if (given_algorithm == "ring_chunked")
        made.reset(new gloo::AllreduceRingChunked<float>(peer->context, pointers,
                                                         static_cast<int>(elem_count)));
    else
        made.reset(new gloo::AllreduceHalvingDoubling<float>(peer->context, pointers,
                                                             static_cast<int>(elem_count)));
    bound.emplace_back(std::make_pair(data, elem_count), std::move(made));
    bound.back().second->run();
}

void gloo_sum(bench_peer *base, size_t first, size_t elem_count)
{
    Peer *peer = static_cast<Peer *>(base);
    float *data = peer->data + first;
    if ((given_algorithm == "ring_chunked") || (given_algorithm == "halving_doubling"))
        return bound_sum(peer, data, elem_count);
    gloo::AllreduceOptions options(peer->context);
    options.setOutput(data, elem_count);
    options.setAlgorithm((given_algorithm == "bcube") ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                      : gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
}

void gloo_barrier(bench_peer *base)
{
    gloo::BarrierOptions options(static_cast<Peer *>(base)->context);
    gloo::barrier(options);
}

double gloo_greatest(bench_peer *base, double value)
{
    gloo::AllreduceOptions options(static_cast<Peer *>(base)->context);
    options.setOutput(&value, 1);
    options.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::max<double>));
    gloo::allreduce(options);
    return value;
}

// Gloo of 2022 takes a store, of 2026 a pointer to one.
template <class Context, class Store, class Device>
auto meet(Context &context, Store &store, Device &device, int)
    -> decltype(context.connectFullMesh(store, device))
{
    context.connectFullMesh(store, device);
}
template <class Context, class Store, class Device>
void meet(Context &context, Store &store, Device &device, long)
{
    context.connectFullMesh(*store, device);
}

} // namespace

int main(int argc, char **argv)
{
    static struct bench bench;
    Peer peer;
    if (bench_options(&bench, argc, argv, "w:r:d:h:a:", own_option) != 0) return 2;
    gloo::transport::tcp::attr where(given_address.c_str());
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto store = std::make_shared<gloo::rendezvous::FileStore>(given_folder);
    peer.context = std::make_shared<gloo::rendezvous::Context>(given_rank, given_world);
    meet(*peer.context, store, device, 0);
    std::vector<float> data(bench.elems_max);
    peer.data = data.data();
    peer.rank = given_rank;
    peer.world = given_world;
    peer.sum = gloo_sum;
    peer.barrier = gloo_barrier;
    peer.greatest = gloo_greatest;
    return bench_run(&peer, &bench);
}
