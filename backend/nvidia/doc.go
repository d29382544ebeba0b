// Package nvidia reads the NVIDIA GPUs of this machine: their devices, their load, and the
// CUDA version that the driver supports. It uses the driver's management library (NVML) or
// the program nvidia-smi. [Inventory] makes catalog types and devices of a pods.Host from
// them. [WithMetrics] adds the loads of a pod's GPUs, and the CUDA version, to what a
// pods.Runtime reports.
//
// # Names
//
// The name of a device is its UUID, as the driver reports it: "GPU-" and hexadecimal
// digits. The UUID does not change after restarts or when the card moves.
// CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES and device requests of container engines
// accept it. In the Container Device Interface the device is "nvidia.com/gpu=" and the
// UUID. The name of a type is the name that the driver reports: "NVIDIA GeForce RTX 4090".
//
// # Assignment
//
// This package assigns no devices. Each device is a claim of one unit in the store of the
// pods, so it belongs to one pod at a time, and the Runtime gives it to the container.
// [Driver.Check] checks before a start that devices are there. So a pod whose GPUs are
// missing fails and does not run without them.
//
// # Partitioned GPUs
//
// A GPU that is partitioned (MIG) is in the list of devices, and so are its parts. Inventory
// offers the parts and not the GPU: each size is a type of its own, and each part belongs to
// one pod at a time. Their UUIDs begin with "MIG-" and work where those of GPUs do. This
// package never changes the mode or the parts of a GPU; parts that somebody makes later are
// offered after the next start of the program.
//
// # Measurements
//
// Util is the percentage of the driver's last sample period (up to a second) in which the
// GPU worked. The interface does not define memoryUtil. Here it is the percentage of the
// GPU's memory in use, as memory.util is the percentage of the pod's memory. A GPU belongs
// to one pod, so its load is that pod's load. A value that the driver does not report is 0: the
// util of a part, for example.
//
// # Platforms
//
// On Linux, in a build with cgo, this package calls the library of the driver. [Open] loads
// it, not the linker, so one program runs with and without it. A process has one NVML: if
// two drivers are opened with different libraries, the second may use the code of the
// first.
//
// Without a library, or in a build that cannot load one, the package runs the program
// nvidia-smi instead. It must come from a driver that knows partitioned GPUs (version 450).
// It is started for every request, so a measurement takes a moment. Without both, Open
// returns [ErrMissing].
package nvidia
