#pragma once

#include <array>

namespace distag {

// A kind of launcher: the environment variables that describe the place of a process. nullptr: the launcher has none.
struct LauncherRow {
  const char* name;        // at most 15 characters
  const char* started_by;  // for the documentation
  const char* seen_by;     // must be set beside rank and world_size
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  const char* node;
  const char* node_count;
  const char* restart;
  const char* meeting;  // for the documentation
};

// In the order of the search: the first launcher whose place is complete counts. The environment is read through this
// table alone. `distag doctor` prints it, and docs/launchers.md has it; so this header includes nothing of distag.
inline constexpr std::array<LauncherRow, 5> kLaunchers = {{
    {"own", "distag run, a script of yours", nullptr, "DISTAG_RANK", "DISTAG_WORLD_SIZE", "DISTAG_LOCAL_RANK",
     "DISTAG_LOCAL_WORLD_SIZE", "DISTAG_GROUP_RANK", "DISTAG_GROUP_WORLD_SIZE", "DISTAG_RESTART_COUNT",
     "DISTAG_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT"},
    {"torchrun", "torchrun, the operators of PyTorch", nullptr, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
     "DISTAG_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT"},
    {"pmix", "mpirun of Open MPI, srun --mpi=pmix", "PMIX_NAMESPACE", "PMIX_RANK", nullptr, nullptr, nullptr, nullptr,
     nullptr, nullptr, "DISTAG_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT, else pmix://"},
    {"slurm", "srun without PMIx", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_RESTART_COUNT",
     "DISTAG_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT, else slurm://"},
    {"kubernetes", "an Indexed Job of Kubernetes", nullptr, "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr,
     nullptr, nullptr, nullptr, "DISTAG_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT"},
}};

inline constexpr const LauncherRow& kOwnLauncher = kLaunchers[0];
inline constexpr const LauncherRow& kTorchrun = kLaunchers[1];
inline constexpr const LauncherRow& kPmix = kLaunchers[2];
inline constexpr const LauncherRow& kSlurm = kLaunchers[3];
inline constexpr const LauncherRow& kKubernetes = kLaunchers[4];

// Set by mpirun besides the variables of PMIx; the Slurm variables that mpirun passes on then describe its daemons.
inline constexpr const char* kMpiRank = "OMPI_COMM_WORLD_RANK";

}  // namespace distag
