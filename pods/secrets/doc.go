// Package secrets keeps values that users do not want to show in the settings of their pods: a
// variable of a pod names a secret, as {{ RUNPOD_SECRET_name }}, and gets its value when the
// container is made.
//
// A value leaves a [Service] only through [Service.ExpandEnv], and to a [Store]: no answer has it.
//
// Where the interface is silent, we chose (docs/decisions.md 49): names that differ only in case are
// the same name, because the list can be asked for one name in any case. The id of a secret is made
// of its owner and its name. So a store that has unique ids has unique names, at all servers.
package secrets
