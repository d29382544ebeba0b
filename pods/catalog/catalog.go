// Package catalog describes what can be rented: GPU types, CPU flavors and data centers, with
// their prices, bounds and stock.
//
// A [Catalog] is data. A program uses [Sample], [Local] or a catalog of its own. It must not
// change the catalog once a service has it.
package catalog

import "slices"

// A Catalog is everything on offer. Ids are unique within each list.
type Catalog struct {
	GPUs        []GPUType
	CPUs        []CPUFlavor
	DataCenters []DataCenter
	Storage     StoragePrices
}

// StoragePrices are the prices of storage.
type StoragePrices struct {
	Disk            StoragePrice // container disks and persistent mounts, while the pod has compute
	Stopped         StoragePrice // persistent mounts of pods that are stopped
	Standard        StoragePrice // network volumes, as is HighPerformance
	HighPerformance StoragePrice
}

// A StoragePrice is USD a month for one GB.
type StoragePrice float64

// Hourly returns the price of gb GB in USD an hour. A month has 730 hours.
func (p StoragePrice) Hourly(gb int) float64 { return float64(p) * float64(gb) / 730 }

// A Manufacturer makes GPUs.
type Manufacturer string

// The manufacturers.
const (
	NVIDIA  Manufacturer = "NVIDIA"
	AMD     Manufacturer = "AMD"
	Unknown Manufacturer = "UNKNOWN"
)

// A GPUType is a model of GPU.
type GPUType struct {
	ID           string // what a request names: "NVIDIA GeForce RTX 4090"
	Name         string // short: "RTX 4090"
	Pool         string // serverless pool, or empty
	Manufacturer Manufacturer
	Memory       int // GB
	Secure       bool
	Community    bool
	Price        GPUPrice
	MaxCount     MaxCount
	// Share is what goes with each GPU on a host whose own size is not known.
	Share Share
}

// A Share is what a pod has of its host for each of its GPUs.
type Share struct {
	VCPU   int
	Memory int // GB
}

// GPUPrice is USD an hour for one GPU. Serverless is 0 outside a pool.
type GPUPrice struct {
	Secure     float64
	Community  float64
	Serverless float64
}

// MaxCount is how many GPUs the largest machine of a tier has.
type MaxCount struct {
	Secure    int
	Community int
}

// A CPUFlavor is a kind of CPU machine.
type CPUFlavor struct {
	ID         string // "cpu5c"
	Name       string
	Group      string // generation: "Gen 5"
	VCPU       Range
	RAMPerVCPU float64 // GB, may be fractional
	Price      CPUPrice
}

// A Range includes both ends.
type Range struct {
	Min int
	Max int
}

// CPUPrice is USD an hour for one vCPU.
type CPUPrice struct {
	Secure     float64
	Serverless float64
}

// Memory returns the memory of a pod with n vCPUs, in whole GB, at least 1.
func (f CPUFlavor) Memory(n int) int { return max(1, int(f.RAMPerVCPU*float64(n))) }

// A Region is a part of the world.
type Region string

// The regions.
const (
	NorthAmerica  Region = "NORTH_AMERICA"
	SouthAmerica  Region = "SOUTH_AMERICA"
	Europe        Region = "EUROPE"
	Asia          Region = "ASIA"
	MiddleEast    Region = "MIDDLE_EAST"
	Africa        Region = "AFRICA"
	Oceania       Region = "OCEANIA"
	Antarctica    Region = "ANTARCTICA"
	UnknownRegion Region = "UNKNOWN"
)

// Regions are all regions.
func Regions() []Region {
	return []Region{NorthAmerica, SouthAmerica, Europe, Asia, MiddleEast, Africa, Oceania, Antarctica, UnknownRegion}
}

// Certifications are the names that the published interface has for certifications of data
// centers. A catalog may have others.
func Certifications() []string {
	return []string{
		"GDPR", "ISO_IEC_27001", "ISO_14001", "PCI_DSS", "HITRUST", "SOC_1_TYPE_2", "SOC_2_TYPE_2", "SOC_3_TYPE_2",
		"ITAR", "FISMA_HIGH", "HIPAA", "RENEWABLE",
	}
}

// A VolumeType is a tier of network storage.
type VolumeType string

// The tiers of network storage.
const (
	Standard        VolumeType = "STANDARD"
	HighPerformance VolumeType = "HIGH_PERFORMANCE"
)

// A DataCenter is a place with machines.
type DataCenter struct {
	ID            string // "US-TX-3"
	Name          string
	Country       string // ISO 3166-1 alpha-2; empty when it is not known
	Region        Region
	GlobalNetwork bool         // joins the private network between data centers
	Volumes       []VolumeType // tiers of network volumes; empty: none
	Compliance    []string     // certifications: "GDPR", "SOC_2_TYPE_2"
	Stock         []Stock      // what it has in all; empty: what its hosts have
}

// Stock is how many units of one thing a data center has in each tier: GPUs of a type,
// or vCPUs of a flavor.
type Stock struct {
	ID        string
	Secure    int
	Community int
}

// GPU returns the type with this id.
func (c Catalog) GPU(id string) (GPUType, bool) {
	return find(c.GPUs, func(g GPUType) bool { return g.ID == id })
}

// CPU returns the flavor with this id.
func (c Catalog) CPU(id string) (CPUFlavor, bool) {
	return find(c.CPUs, func(f CPUFlavor) bool { return f.ID == id })
}

// DataCenter returns the data center with this id.
func (c Catalog) DataCenter(id string) (DataCenter, bool) {
	return find(c.DataCenters, func(d DataCenter) bool { return d.ID == id })
}

func find[T any](list []T, is func(T) bool) (v T, ok bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return v, false
}
