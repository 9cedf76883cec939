"""XLA's flags for programs that run once: compile time matters, not speed."""

import importlib.metadata
import re

_RELEASE = tuple(map(int, re.findall(r"\d+", importlib.metadata.version("jaxlib"))[:3]))
QUICK = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    # splitting small programs for parallel compilation costs more than it saves
    "--xla_cpu_parallel_codegen_split_count=1"
)
# later releases end the process at this flag; the emitters make faster loops but compile twice as long
if _RELEASE < (0, 11, 1):
    QUICK += " --xla_cpu_use_fusion_emitters=false"
