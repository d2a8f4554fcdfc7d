// A trainer with LibTorch and its own optimizer: fits y = sin(x) on the ranks of the job.
//     make libtorch && gf-run -n 2 ./libtorch [CONFIGURATION]
// Each parameter has a hook, so that its gradient travels while backward computes the rest.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <torch/torch.h>

#include <gradientflow/config.h>
#include <gradientflow/gradientflow.h>

namespace
{

// One that fails ends the program; the log has said why, and the other ranks hear of it at once.
void must(gf_status status)
{
    if (status < 0) std::exit(1);
}

class Job
{
  public:
    Job(const char *path, const torch::nn::Module &net)
    {
        const auto named = net.named_parameters();
        std::vector<gf_tensor> tensors; // about in the order in which backward ends them
        for (size_t i = named.size(); i-- > 0;) {
            const auto count = static_cast<uint64_t>(named[i].value().numel());
            tensors.push_back({named[i].key().c_str(), count, 0, GF_TYPE_F32});
            params.push_back(named[i].value());
        }
        const char *texts[] = {"exchange.average=ranks"};
        char error[GF_CONFIG_ERROR_BYTES];
        must(gf_open_text(path, texts, 1, GF_NEED_OWN_OPTIMIZER | GF_NEED_NO_LOSS_SCALE,
                          tensors.data(), static_cast<uint32_t>(tensors.size()), nullptr, nullptr,
                          0, gf_log_stderr, nullptr, aligned_alloc, error, &memory, &gf));
        must(gf_open_wait(gf));
        broadcast();
        for (uint32_t i = 0; i < params.size(); i++)
            params[i].register_hook([this, i](torch::Tensor gradient) {
                must(gf_tensor_copy(gf, i, gradient.contiguous().data_ptr(), 0));
            });
    }
    ~Job()
    {
        must(gf_close(gf));
        std::free(memory);
    }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    uint32_t rank() const
    {
        return gf_rank(gf);
    }
    double loss_of_all() const
    {
        return gf_metric(gf, 0) / gf_world(gf);
    }

    // Backward; then the gradients are the averages. False: a value was not finite, so no rank applies the step.
    bool backward(torch::Tensor loss)
    {
        must(gf_step_begin(gf));
        must(gf_step_metric(gf, 0, loss.item<double>()));
        loss.backward();
        must(gf_step_wait(gf));
        for (uint32_t i = 0; i < params.size(); i++)
            params[i].mutable_grad() =
                torch::from_blob(reinterpret_cast<void *>(gf_gradient(gf, i)), params[i].sizes());
        return !gf_step_skipped(gf);
    }

  private:
    // Rank 0's first values.
    void broadcast()
    {
        for (auto &param : params) {
            gf_request request = {};
            must(gf_broadcast(gf, reinterpret_cast<gf_mem>(param.data_ptr()),
                              static_cast<uint64_t>(param.numel()), GF_TYPE_F32, 0, &request));
            must(gf_request_wait(gf, &request));
        }
    }

    gf_context *gf = nullptr;
    void *memory = nullptr;
    std::vector<torch::Tensor> params;
};

} // namespace

int main(int argc, char **argv)
{
    torch::set_num_threads(1);
    torch::nn::Sequential net(torch::nn::Linear(1, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
    Job job((argc > 1) ? argv[1] : nullptr, *net);
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
    torch::manual_seed(job.rank()); // each rank draws its own points
    for (int step = 0; step < 500; step++) {
        const torch::Tensor x = 6 * torch::rand({64, 1}) - 3;
        optimizer.zero_grad();
        if (job.backward(torch::mse_loss(net->forward(x), x.sin()))) optimizer.step();
    }
    if (job.rank() == 0) std::printf("loss %.4f\n", job.loss_of_all());
    return 0;
}
