module github.com/podyard/podyard

go 1.26.0

toolchain go1.26.10

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/google/go-cmp v0.7.0
	golang.org/x/time v0.16.0
	pgregory.net/rapid v1.3.0
)
