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
// Partitioned GPUs (MIG) are in the list of devices, but Inventory leaves them out. This
// package never changes the mode of a GPU.
//
// # Measurements
//
// Util is the percentage of the driver's last sample period (up to a second) in which the
// GPU worked. The interface does not define memoryUtil. Here it is the percentage of the
// GPU's memory in use, as memory.util is the percentage of the pod's memory. A GPU belongs
// to one pod, so its load is that pod's load. A value that the driver does not report is 0.
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
