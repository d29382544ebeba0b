# Each target is a step of .ci/run, which installs what the step needs and says what it does.
# "make ci" runs all of them, and "make long" what takes longer than that.

steps := vet format tidy build cross test user checkout lint examples nested package fuzz bench

.PHONY: ci long $(steps)

ci:
	.ci/run

long:
	.ci/long

$(steps):
	.ci/run $@
