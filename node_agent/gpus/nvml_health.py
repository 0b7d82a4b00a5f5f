"""What is wrong with a GPU, by what NVML answers or by how its library fails."""

from typing import Any

from orion.node_agent.gpus.interface import HEALTHY, Health

AWAY = Health(False, "DriverAway", "the NVIDIA driver does not answer: see that it is loaded (nvidia-smi)")
MISMATCH = Health(
    False,
    "DriverMismatch",
    "the driver's library and its kernel module are of two versions: reboot the node",
)
REPLACED = Health(
    False, "DriverReplaced", "the driver was replaced while the agent ran, so the agent must be restarted"
)
RESET = Health(False, "ResetRequired", "the driver says that the GPU must be reset (nvidia-smi --gpu-reset)")


def recovery(nvml: Any, handle: Any) -> Health:
    """Return what the driver says must be done to the GPU; older drivers do not report this."""
    try:
        value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    except (nvml.NVMLError, AttributeError):
        return HEALTHY
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        return HEALTHY
    action = int(value.value.uiVal)
    if action in (nvml.NVML_GPU_RECOVERY_ACTION_NONE, nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P):
        return HEALTHY
    if action == nvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT:
        return Health(False, "RebootRequired", "the driver says that the node must be rebooted for this GPU")
    return RESET


def trouble(nvml: Any, error: Exception) -> Health:
    """Return what an error of a query says about the GPU."""
    number = getattr(error, "value", None)
    if number == nvml.NVML_ERROR_GPU_IS_LOST:
        return Health(False, "GPULost", "the GPU has fallen off the bus: reboot the node, or reset its slot")
    if number == nvml.NVML_ERROR_RESET_REQUIRED:
        return RESET
    if number == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return REPLACED
    return Health(False, "DriverError", f"the NVIDIA driver answers with an error: {error}", critical=False)
