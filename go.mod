module github.com/podyard/podyard

go 1.26.0

toolchain go1.26.10

require (
	github.com/google/go-cmp v0.7.0
	pgregory.net/rapid v1.3.0
)
