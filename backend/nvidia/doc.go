// Package nvidia knows the NVIDIA GPUs of this machine: which there are, how loaded
// each is, and which CUDA version the driver supports. It asks the driver's management
// library (NVML) or the program nvidia-smi. [Offer] makes catalog types and devices of
// a pods.Host from them. [Measure] adds the loads of a pod's GPUs, and the CUDA
// version, to what a pods.Runtime reports.
//
// # Names
//
// A device is its UUID, as the driver gives it: "GPU-" and hexadecimal digits. The UUID
// stays the same over restarts and when the card moves. CUDA_VISIBLE_DEVICES,
// NVIDIA_VISIBLE_DEVICES and device requests of container engines take it, and the
// Container Device Interface calls the device "nvidia.com/gpu=" and the UUID. A type is
// the name that the driver gives: "NVIDIA GeForce RTX 4090".
//
// # Who gets one
//
// This package assigns nothing. Each device is a claim of one unit in the store of the
// pods, so it belongs to one pod at a time, and the Runtime hands it over.
// [Driver.Check] says before a start whether devices are there, so that a pod whose
// GPUs did not arrive fails and does not run without them.
//
// GPUs that are partitioned (MIG) are in the inventory and are not offered. Nothing
// here changes the mode of a GPU.
//
// # What is measured
//
// Util is the share of the last moments (the driver's sample, up to a second) in which
// the GPU worked. The interface does not say what memoryUtil is. Here it is the share
// of the GPU's memory that is in use, as memory.util is the share of the pod's memory.
// A GPU belongs to one pod, so its load is the load of that pod. What the driver cannot
// tell is 0.
//
// # Where it works
//
// On Linux, in a build with cgo, the library of the driver is called. It is looked up
// by [Open] and not by the linker, so one program runs with and without it. A process
// has one NVML: if two drivers are opened with different libraries, the second may be
// served by the code of the first.
//
// Where there is no library, or the build cannot load one, the program nvidia-smi is
// asked instead; it must come from a driver that knows partitioned GPUs (version 450).
// It is started for every question, so a measurement takes a moment. Without both, Open
// returns [ErrMissing].
package nvidia
