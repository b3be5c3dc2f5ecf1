#include "base/environment.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace ingot {

namespace {

constexpr EnvironmentVariable variables[] = {
    {"AWS_ACCESS_KEY_ID", "key id for object stores (with `AWS_SECRET_ACCESS_KEY`)"},
    {"AWS_CONFIG_FILE", "AWS configuration file; default `~/.aws/config`"},
    {"AWS_DEFAULT_PROFILE", "as `AWS_PROFILE`, which comes first"},
    {"AWS_DEFAULT_REGION", "as `AWS_REGION`, which comes first"},
    {"AWS_ENDPOINT_URL", "address of an S3-compatible store; default Amazon's"},
    {"AWS_ENDPOINT_URL_S3", "as `AWS_ENDPOINT_URL`, before it"},
    {"AWS_PROFILE", "profile of the AWS files; default `default`"},
    {"AWS_REGION", "region of the object store"},
    {"AWS_SECRET_ACCESS_KEY", "secret key for object stores"},
    {"AWS_SESSION_TOKEN", "session token for object stores"},
    {"AWS_SHARED_CREDENTIALS_FILE", "AWS credentials file; default `~/.aws/credentials`"},
    {"COLUMNS", "width of the progress bar, where the terminal does not report it"},
    {"CONDA_PREFIX", "GPU libraries are also looked for in this Conda environment"},
    {"CUDA_HOME", "folder of the CUDA toolkit; its libraries are looked for there"},
    {"CUDA_PATH", "as `CUDA_HOME`"},
    {"CURL_CA_BUNDLE", "file of certificate authorities for HTTPS; before `SSL_CERT_FILE`"},
    {"DNNL_MAX_CPU_ISA", "read by oneDNN; `ingot doctor` warns if it is set"},
    {"GPU_MAX_HW_QUEUES", "read by HIP; below 4, pipelines whose messages RCCL sends are refused"},
    {"HF_ENDPOINT", "address of the Hugging Face hub for `ingot model pull`; `--endpoint` comes first"},
    {"HF_TOKEN", "token for the hub"},
    {"HOME", "holds `.ingot` (see `INGOT_HOME`), `.aws`, and Python packages of the user"},
    {"INGOT_CACHE", "folder of cached remote files; default `cache` in `INGOT_HOME`"},
    {"INGOT_CACHE_BYTES", "upper limit of that cache, such as `50G`"},
    {"INGOT_CPU_ISA",
     "highest CPU instruction level to use: `plain`, `avx2`, `avx512`, `avx512_fma` (bf16 is "
     "multiplied as fp32) or `amx`"},
    {"INGOT_CUBLASLT_LIBRARY", "file of cuBLASLt"},
    {"INGOT_CUDA_LIBRARY", "file of the CUDA driver"},
    {"INGOT_CUDNN_LIBRARY", "file of cuDNN"},
    {"INGOT_GPU_WAIT", "`1`: wait after every kernel launch, so that an error names the op that failed"},
    {"INGOT_GRAPHS", "`0`: do not record GPU work as graphs; `1`: fail where the driver does not record all of it"},
    {"INGOT_HIPBLASLT_LIBRARY", "file of hipBLASLt"},
    {"INGOT_HIP_LIBRARY", "file of the HIP runtime"},
    {"INGOT_HOME", "folder of registered models, measured rates and the cache; default `~/.ingot`"},
    {"INGOT_MPI", "file of the MPI plug-in (`./run mpi`)"},
    {"INGOT_NCCL_LIBRARY", "file of NCCL"},
    {"INGOT_NVML_LIBRARY", "file of NVML, for energy"},
    {"INGOT_OPS", "implementations of ops to use, such as `linear=tiles,attention=mma`"},
    {"INGOT_RCCL_LIBRARY", "file of RCCL"},
    {"INGOT_ROCM_SMI_LIBRARY", "file of ROCm SMI, for energy"},
    {"MKL_NUM_THREADS", "no effect; `ingot doctor` says so"},
    {"OMPI_COMM_WORLD_RANK", "set by Open MPI's mpirun: the process is a rank"},
    {"OMPI_COMM_WORLD_SIZE", "set by Open MPI's mpirun: the number of ranks"},
    {"OMP_NUM_THREADS", "no effect; `ingot doctor` says so"},
    {"ONEDNN_MAX_CPU_ISA", "read by oneDNN; `ingot doctor` warns if it is set"},
    {"OPENBLAS_NUM_THREADS", "no effect; `ingot doctor` says so"},
    {"PATH", "GPU libraries are looked for beside the `python3` on it; printed commands name `ingot` as it finds it"},
    {"PMI_RANK", "set by MPICH's mpirun: the process is a rank"},
    {"PMI_SIZE", "set by MPICH's mpirun: the number of ranks"},
    {"ROCM_PATH", "folder of ROCm; default `/opt/rocm`"},
    {"S3_ENDPOINT_URL", "as `AWS_ENDPOINT_URL`, after it"},
    {"SLURM_STEP_ID", "set by srun: the process is a task of a step"},
    {"SLURM_STEP_NUM_TASKS", "set by srun: the number of ranks"},
    {"SSL_CERT_DIR", "folder of certificate authorities for HTTPS"},
    {"SSL_CERT_FILE", "file of certificate authorities for HTTPS"},
    {"TERM", "unset or `dumb`: plain lines instead of a progress bar"},
    {"VIRTUAL_ENV", "GPU libraries are also looked for in this Python environment"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return variables; }

const char* environment(const char* name) {
  const auto has_name = [&](const EnvironmentVariable& each) { return std::string_view(each.name) == name; };
  if (std::ranges::none_of(variables, has_name)) {
    throw_error(ErrorKind::internal, "the environment variable {} is not in the table of base/environment.cpp", name);
  }
  return std::getenv(name);
}

}  // namespace ingot
