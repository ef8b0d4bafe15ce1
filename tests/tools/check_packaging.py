"""What packaging/ has for launchers: the unit of systemd, the scripts for Slurm and Open MPI, the manifests.
No cluster runs here: units and manifests are checked by their rules, scripts run under a launcher that stands in.
usage: check_packaging.py REPOSITORY"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.join(os.path.abspath(sys.argv[1]), "packaging")
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "1", "PMIX_NAMESPACE": "x"}
SHOW = 'echo "$DISTAG_RANK of $DISTAG_WORLD_SIZE, $DISTAG_LOCAL_RANK of $DISTAG_LOCAL_WORLD_SIZE at $DISTAG_RENDEZVOUS"'


def run(*command, **environment):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("DISTAG_", "OMPI_", "PMIX_", "SLURM_", "MASTER_", "OPENBLAS_"))}
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def verify(text):
    """The complaints of systemd about a unit, for the instance 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "distag@0.service")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        code, output, errors = run("systemd-analyze", "verify", path)
        return (output + errors).strip() or ("" if code == 0 else f"code {code}")


def check_systemd():
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is missing"
    with open(os.path.join(ROOT, "systemd", "distag@.service"), encoding="utf-8") as file:
        unit = file.read().replace("ExecStart=/usr/local/bin/train", "ExecStart=/bin/true")
    assert verify(unit) == "", verify(unit)
    for right, wrong in (("Restart=on-failure", "Restart=sometimes"), ("LoadCredential=", "LoadCredentials=")):
        assert right in unit and verify(unit.replace(right, wrong)), f"{wrong} goes unnoticed"
    for line in ("Environment=DISTAG_RANK=%i", "Environment=DISTAG_GROUP_KEY_FILE=%d/group.key", "Restart=on-failure",
                 "LoadCredential=group.key:/etc/distag/group.key"):
        assert f"\n{line}\n" in unit, line
    return None


def check_slurm():
    script = os.path.join(ROOT, "slurm", "distag.sbatch")
    with tempfile.TemporaryDirectory() as folder:
        srun = os.path.join(folder, "srun")
        with open(srun, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$OPENBLAS_NUM_THREADS $DISTAG_GROUP_KEY_FILE srun $*"\n')
        os.chmod(srun, stat.S_IRWXU)
        path = folder + os.pathsep + os.environ["PATH"]
        wanted = "srun --mpi=none --kill-on-bad-exit=1 ./train a b\n"
        seen = run("sh", script, "./train", "a b", PATH=path, HOME="/home/me")
        assert seen == (0, "1 /home/me/.distag/group.key " + wanted, ""), seen
        seen = run("sh", script, "./train", "a b", PATH=path, SLURM_CPUS_PER_TASK="3", DISTAG_GROUP_KEY_FILE="/k")
        assert seen == (0, "3 /k " + wanted, ""), seen
        code, output, errors = run("sh", script, PATH=path)
        assert (code, output) == (2, "") and errors.startswith("usage: sbatch"), errors


def check_open_mpi():
    script = os.path.join(ROOT, "mpi", "distag-mpi")
    seen = run(script, "sh", "-c", SHOW, **OPEN_MPI)
    assert seen == (0, "1 of 2, 1 of 2 at tcp://127.0.0.1:29500\n", ""), seen
    seen = run(script, "sh", "-c", SHOW, **OPEN_MPI, DISTAG_RENDEZVOUS="file:///x")
    assert seen == (0, "1 of 2, 1 of 2 at file:///x\n", ""), seen
    code, output, errors = run(script, "sh", "-c", SHOW, **{**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    assert (code, output) == (2, "") and "-x DISTAG_RENDEZVOUS" in errors, errors
    code, output, errors = run(script, "sh", "-c", SHOW)
    assert (code, output) == (2, "") and "mpirun" in errors, errors


def manifests(name):
    with open(os.path.join(ROOT, "kubernetes", name), encoding="utf-8") as file:
        return {document["kind"]: document for document in yaml.safe_load_all(file)}


def check_pods(job):
    """The rules that a Job of workers has to keep; gives its variables."""
    assert job["apiVersion"] == "batch/v1" and set(job) == {"apiVersion", "kind", "metadata", "spec"}, job
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"], spec
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0, pod
    assert pod["terminationGracePeriodSeconds"] == 30 and pod["restartPolicy"] == "OnFailure", pod
    (container,) = pod["containers"]
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] and rights["allowPrivilegeEscalation"] is False, rights
    assert rights["capabilities"] == {"drop": ["ALL"]}, rights
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(volumes) == set(mounts), (volumes, mounts)
    assert volumes["key"]["secret"]["defaultMode"] == 0o440, volumes
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert all(isinstance(value, str) for value in variables.values()), variables
    assert os.path.dirname(variables["DISTAG_GROUP_KEY_FILE"]) == mounts["key"], variables
    return variables


def check_kubernetes():
    if yaml is None:
        return "python3-yaml is missing"
    found = manifests("distag.yaml")
    service, job, policy = (found[kind] for kind in ("Service", "Job", "NetworkPolicy"))
    variables, labels = check_pods(job), job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True, service
    assert service["spec"]["selector"] == labels == policy["spec"]["podSelector"]["matchLabels"], (service, policy)
    assert int(variables["WORLD_SIZE"]) == job["spec"]["completions"], variables
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"], job
    (port,) = service["spec"]["ports"]
    place = f"tcp://{job['metadata']['name']}-0.{service['metadata']['name']}:{port['port']}"
    assert variables["DISTAG_RENDEZVOUS"] == place, variables
    elastic = check_pods(manifests("elastic.yaml")["Job"])
    assert elastic["WORLD_SIZE"] == "-1" and elastic["DISTAG_RENDEZVOUS"].startswith("etcd://"), elastic
    return None


if __name__ == "__main__":
    for check in (check_systemd, check_slurm, check_open_mpi, check_kubernetes):
        missing = check()
        print(f"skipped {check.__name__}: {missing}" if missing else f"ok {check.__name__}")
