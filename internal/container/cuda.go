package container

import (
	"cmp"
	"strconv"
	"strings"
)

// CUDAVersions requires versions that CompareCUDA can compare.
func (v Rules) CUDAVersions(place string, list []string) {
	for i, s := range list {
		v.CUDAVersion(place+"/"+strconv.Itoa(i), s)
	}
}

// CUDAVersion requires the form major.minor.
func (v Rules) CUDAVersion(place, s string) {
	major, minor, ok := strings.Cut(s, ".")
	if !ok || !digits(major) || !digits(minor) {
		v.Invalid(place, "must be a CUDA version, major.minor")
	}
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// CompareCUDA compares two versions number by number: 12.11 is above 12.2.
func CompareCUDA(a, b string) int {
	aMajor, aMinor, _ := strings.Cut(a, ".")
	bMajor, bMinor, _ := strings.Cut(b, ".")
	return cmp.Or(compareDigits(aMajor, bMajor), compareDigits(aMinor, bMinor))
}

// compareDigits compares numbers of any length.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
