// Package nvidia knows the NVIDIA GPUs of this machine, by the driver's own management
// library (NVML), or by nvidia-smi: which there are, how loaded each is, and which CUDA
// version the driver speaks. [Offer] makes catalog types and devices of a pods.Host out of
// them; [Measure] adds the loads of a pod's GPUs, and the CUDA version, to what a
// pods.Runtime reports.
//
// # What a GPU is called
//
// A device is its UUID, as the driver gives it: "GPU-" and hexadecimal digits. It lasts
// over restarts and moves of the card, and it is what CUDA_VISIBLE_DEVICES and
// NVIDIA_VISIBLE_DEVICES take, what a device request of a container engine takes, and
// what the Container Device Interface calls "nvidia.com/gpu=" and the UUID. A type is the
// name that the driver gives: "NVIDIA GeForce RTX 4090".
//
// # Who gets one
//
// Nobody here assigns. Each device is a claim of one in the store of the pods, so it is
// one pod's at a time; the Runtime hands it over. [Driver.Check] says before a start
// whether devices are there, so that a pod whose GPUs did not arrive fails and does not
// run without them.
//
// GPUs that are partitioned (MIG) are left as they are: they are in the inventory, they
// are not offered, and nothing here changes the mode of a GPU.
//
// # What is measured
//
// Util is the share of the last moments (the driver's sample, up to a second) in which the
// GPU worked. The interface does not say what memoryUtil is: here it is the share of the
// GPU's memory that is in use, as memory.util is that of the pod's memory. A GPU is its
// pod's alone, so what it does is what the pod does. What the driver cannot tell is 0.
//
// # Where it works
//
// On Linux, in a build with cgo, the library is called, which comes with the driver. It is
// looked up when [Open] is called and not when the program is linked, so one program runs
// with and without. A process has one NVML: of two drivers opened with different libraries
// the second may be served by the first one's code.
//
// Where there is no library, or the build cannot load one, the program nvidia-smi is asked
// instead, from a driver that knows of partitioned GPUs (450): it is started for every
// question, so a measurement takes a moment. Without either Open returns [ErrMissing].
package nvidia
