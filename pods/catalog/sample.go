package catalog

// Sample returns a catalog like that of the hosted service: the same ids, plausible prices and
// made-up stock. Each call returns a new one.
func Sample() Catalog {
	return Catalog{GPUs: sampleGPUs(), CPUs: sampleCPUs(), DataCenters: sampleDataCenters(), Storage: StoragePrices{Disk: 0.10, Stopped: 0.20, Standard: 0.07, HighPerformance: 0.14}}
}

// sampleGPUs lists, for each type: memory, prices (secure, community, serverless) and the
// largest machine of each tier. A largest machine of 0 GPUs is a tier without the type.
func sampleGPUs() []GPUType {
	return []GPUType{
		gpu("NVIDIA GeForce RTX 3090", "RTX 3090", "AMPERE_24", 24, 0.46, 0.22, 0.68, 8, 6),
		gpu("NVIDIA GeForce RTX 4080", "RTX 4080", "", 16, 0.49, 0.27, 0, 4, 4),
		gpu("NVIDIA GeForce RTX 4090", "RTX 4090", "ADA_24", 24, 0.69, 0.34, 1.10, 8, 6),
		gpu("NVIDIA GeForce RTX 5090", "RTX 5090", "ADA_32_PRO", 32, 0.94, 0.69, 1.58, 8, 4),
		gpu("NVIDIA RTX A4000", "RTX A4000", "AMPERE_16", 16, 0.25, 0.17, 0.58, 8, 4),
		gpu("NVIDIA RTX A4500", "RTX A4500", "AMPERE_16", 20, 0.25, 0.19, 0.58, 8, 4),
		gpu("NVIDIA RTX A5000", "RTX A5000", "AMPERE_24", 24, 0.27, 0.16, 0.68, 8, 4),
		gpu("NVIDIA RTX A6000", "RTX A6000", "AMPERE_48", 48, 0.49, 0.33, 1.22, 8, 4),
		gpu("NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada", "", 16, 0.24, 0, 0, 8, 0),
		gpu("NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada", "ADA_20", 20, 0.26, 0.20, 0.60, 8, 4),
		gpu("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "ADA_48_PRO", 48, 0.77, 0.74, 1.90, 8, 8),
		gpu("NVIDIA L4", "L4", "AMPERE_24", 24, 0.39, 0, 0.68, 8, 0),
		gpu("NVIDIA L40", "L40", "ADA_48_PRO", 48, 0.99, 0.69, 1.90, 8, 8),
		gpu("NVIDIA L40S", "L40S", "ADA_48_PRO", 48, 0.86, 0.79, 1.90, 8, 8),
		gpu("NVIDIA A40", "A40", "AMPERE_48", 48, 0.40, 0.35, 1.22, 10, 8),
		gpu("NVIDIA A100 80GB PCIe", "A100 PCIe", "AMPERE_80", 80, 1.64, 1.19, 2.72, 8, 8),
		gpu("NVIDIA A100-SXM4-80GB", "A100 SXM", "AMPERE_80", 80, 1.74, 1.39, 2.72, 8, 8),
		gpu("NVIDIA H100 PCIe", "H100 PCIe", "ADA_80_PRO", 80, 2.39, 1.99, 4.18, 8, 8),
		gpu("NVIDIA H100 80GB HBM3", "H100 SXM", "ADA_80_PRO", 80, 2.99, 2.69, 4.18, 8, 8),
		gpu("NVIDIA H100 NVL", "H100 NVL", "ADA_80_PRO", 94, 2.79, 2.59, 4.18, 8, 8),
		gpu("NVIDIA H200", "H200 SXM", "HOPPER_141", 141, 3.99, 3.59, 5.58, 8, 8),
		gpu("NVIDIA B200", "B200", "BLACKWELL_180", 180, 5.98, 0, 8.64, 8, 0),
		gpu("AMD Instinct MI300X OAM", "MI300X", "", 192, 2.49, 0, 0, 8, 0),
	}
}

func gpu(id, name, pool string, memory int, secure, community, serverless float64, maxSecure, maxCommunity int) GPUType {
	maker := NVIDIA
	if id[:3] == "AMD" {
		maker = AMD
	}
	return GPUType{
		ID: id, Name: name, Pool: pool, Manufacturer: maker, Memory: memory,
		Secure: maxSecure > 0, Community: maxCommunity > 0,
		Price:    GPUPrice{Secure: secure, Community: community, Serverless: serverless},
		MaxCount: MaxCount{Secure: maxSecure, Community: maxCommunity},
		Share:    Share{VCPU: max(6, memory/8), Memory: max(24, memory*3/2)},
	}
}

func sampleCPUs() []CPUFlavor {
	flavor := func(id, name, group string, most int, ram, secure, serverless float64) CPUFlavor {
		return CPUFlavor{
			ID: id, Name: name, Group: group, VCPU: Range{Min: 2, Max: most}, RAMPerVCPU: ram,
			Price: CPUPrice{Secure: secure, Serverless: serverless},
		}
	}
	return []CPUFlavor{
		flavor("cpu3c", "Compute-Optimized", "Gen 3", 32, 2, 0.03, 0.02),
		flavor("cpu3g", "General Purpose", "Gen 3", 32, 4, 0.04, 0.03),
		flavor("cpu3m", "Memory-Optimized", "Gen 3", 32, 8, 0.06, 0.045),
		flavor("cpu5c", "Compute-Optimized", "Gen 5", 32, 2, 0.035, 0.025),
		flavor("cpu5g", "General Purpose", "Gen 5", 32, 4, 0.05, 0.037),
		flavor("cpu5m", "Memory-Optimized", "Gen 5", 16, 8, 0.07, 0.052),
	}
}

func sampleDataCenters() []DataCenter {
	both := []VolumeType{Standard, HighPerformance}
	standard := []VolumeType{Standard}
	return []DataCenter{
		{"CA-MTL-1", "Canada Montreal 1", "CA", NorthAmerica, true, standard, []string{"SOC_2_TYPE_2"}, append(cpus(512),
			Stock{"NVIDIA GeForce RTX 4090", 64, 16}, Stock{"NVIDIA RTX A4000", 48, 16}, Stock{"NVIDIA RTX A4500", 48, 0},
			Stock{"NVIDIA RTX A5000", 64, 8}, Stock{"NVIDIA A40", 80, 0}, Stock{"NVIDIA RTX 4000 Ada Generation", 16, 0})},
		{"CA-MTL-3", "Canada Montreal 3", "CA", NorthAmerica, true, both, []string{"SOC_2_TYPE_2", "ISO_IEC_27001"}, []Stock{
			{"NVIDIA H100 80GB HBM3", 32, 8}, {"NVIDIA H100 PCIe", 32, 8}, {"NVIDIA L4", 32, 0}, {"NVIDIA RTX A6000", 48, 8}}},
		{"EU-CZ-1", "Europe Czechia 1", "CZ", Europe, true, standard, []string{"GDPR", "ISO_IEC_27001"}, append(cpus(512),
			Stock{"NVIDIA GeForce RTX 3090", 48, 24}, Stock{"NVIDIA GeForce RTX 4090", 64, 32}, Stock{"NVIDIA GeForce RTX 5090", 32, 8},
			Stock{"NVIDIA GeForce RTX 4080", 8, 8})},
		{"EU-FR-1", "Europe France 1", "FR", Europe, false, standard, []string{"GDPR"}, []Stock{
			{"NVIDIA H200", 32, 8}, {"NVIDIA RTX 2000 Ada Generation", 32, 0}}},
		{"EU-NL-1", "Europe Netherlands 1", "NL", Europe, false, nil, []string{"GDPR", "ISO_IEC_27001", "PCI_DSS"}, []Stock{
			{"NVIDIA H100 NVL", 24, 8}, {"NVIDIA L40S", 32, 8}, {"NVIDIA RTX 6000 Ada Generation", 32, 8}}},
		{"EU-RO-1", "Europe Romania 1", "RO", Europe, true, both, []string{"GDPR", "SOC_2_TYPE_2"}, append(cpus(2048),
			Stock{"NVIDIA GeForce RTX 4090", 128, 16}, Stock{"NVIDIA L4", 64, 0}, Stock{"NVIDIA L40", 16, 8},
			Stock{"NVIDIA RTX 2000 Ada Generation", 64, 0}, Stock{"NVIDIA RTX 4000 Ada Generation", 64, 8},
			Stock{"AMD Instinct MI300X OAM", 16, 0})},
		{"EU-SE-1", "Europe Sweden 1", "SE", Europe, true, standard, []string{"GDPR", "RENEWABLE"}, []Stock{
			{"NVIDIA A40", 64, 16}, {"NVIDIA RTX A4500", 48, 8}, {"NVIDIA RTX A5000", 64, 8}, {"NVIDIA RTX A6000", 48, 8}}},
		{"EUR-IS-1", "Europe Iceland 1", "IS", Europe, true, both, []string{"GDPR", "ISO_14001", "RENEWABLE"}, append(cpus(1024),
			Stock{"NVIDIA H100 80GB HBM3", 64, 0}, Stock{"NVIDIA B200", 32, 0}, Stock{"NVIDIA GeForce RTX 5090", 32, 0})},
		{"AP-JP-1", "Asia Japan 1", "JP", Asia, false, standard, []string{"ISO_IEC_27001"}, append(cpus(256),
			Stock{"NVIDIA GeForce RTX 4090", 16, 8}, Stock{"NVIDIA H200", 16, 0})},
		{"OC-AU-1", "Oceania Australia 1", "AU", Oceania, false, nil, []string{"ISO_IEC_27001"}, []Stock{
			{"NVIDIA L40S", 24, 8}, {"NVIDIA H100 PCIe", 8, 0}}},
		{"US-CA-2", "US California 2", "US", NorthAmerica, true, both, []string{"SOC_2_TYPE_2", "HIPAA"}, append(cpus(512),
			Stock{"NVIDIA H100 80GB HBM3", 64, 8}, Stock{"NVIDIA H200", 64, 0}, Stock{"NVIDIA GeForce RTX 5090", 16, 0})},
		{"US-GA-1", "US Georgia 1", "US", NorthAmerica, false, nil, []string{"SOC_2_TYPE_2"}, []Stock{
			{"NVIDIA A100 80GB PCIe", 32, 16}, {"NVIDIA L40S", 16, 8}}},
		{"US-KS-2", "US Kansas 2", "US", NorthAmerica, true, both, []string{"SOC_2_TYPE_2", "HITRUST", "HIPAA"}, append(cpus(1024),
			Stock{"NVIDIA A100 80GB PCIe", 64, 8}, Stock{"NVIDIA A100-SXM4-80GB", 64, 8}, Stock{"NVIDIA H100 NVL", 16, 0},
			Stock{"NVIDIA RTX A6000", 48, 8}, Stock{"NVIDIA RTX 6000 Ada Generation", 48, 0}, Stock{"NVIDIA L40S", 48, 0})},
		{"US-TX-3", "US Texas 3", "US", NorthAmerica, true, standard, []string{"SOC_2_TYPE_2", "SOC_3_TYPE_2"}, append(cpus(1024),
			Stock{"NVIDIA A40", 64, 8}, Stock{"NVIDIA RTX A6000", 48, 8}, Stock{"NVIDIA GeForce RTX 3090", 32, 16},
			Stock{"NVIDIA GeForce RTX 4090", 64, 16}, Stock{"NVIDIA GeForce RTX 5090", 32, 8}, Stock{"NVIDIA B200", 16, 0})},
	}
}

// cpus returns n vCPUs of each flavor on the secure cloud.
func cpus(n int) []Stock {
	return []Stock{
		{"cpu3c", n, 0}, {"cpu3g", n, 0}, {"cpu3m", n, 0}, {"cpu5c", n, 0}, {"cpu5g", n, 0}, {"cpu5m", n, 0},
	}
}
