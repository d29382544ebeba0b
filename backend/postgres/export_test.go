package postgres

// A Plan is a statement of the queue with the indexes that its plan must use.
type Plan struct {
	SQL     string
	Args    int
	Indexes []string
	Sorts   bool // the plan may sort, because it has few rows to sort
}

// PlanSettings are the settings of connections that make plans for the queue.
const PlanSettings = planSettings

// Plans returns the statements of which plans matter.
func Plans() map[string]Plan {
	return map[string]Plan{
		"add":       {sqlAdd, 19, nil, true},
		"lock":      {sqlLock, 2, []string{"jobs_pkey"}, false},
		"update":    {sqlUpdate, 7, []string{"jobs_pkey"}, false},
		"delete":    {sqlDelete, 2, []string{"jobs_pkey"}, false},
		"unready":   {sqlUnready, 5, []string{"job_ready_pkey"}, false},
		"stopped":   {sqlStopped, 4, []string{"job_running_pkey"}, false},
		"outputs":   {sqlDropOutputs, 1, []string{"job_outputs_pkey"}, false},
		"chunks":    {sqlDropChunks, 2, []string{"job_chunks_pkey"}, false},
		"outbox":    {sqlPutOutbox, 9, []string{"job_bodies_pkey", "job_outputs_pkey"}, false},
		"dead":      {sqlPutDead, 8, []string{"job_bodies_pkey", "job_outputs_pkey"}, false},
		"trim dead": {sqlTrimDead, 3, []string{"job_dead_owner"}, false},
		"drop dead": {sqlDropDead, 2, []string{"job_dead_pkey"}, false},
		"read dead": {sqlDead, 2, []string{"job_dead_pkey"}, false},
		"oldest":    {sqlOldest, 3, []string{"job_endpoints_pkey", "job_ready_pkey", "jobs_seq"}, false},
		"lock seqs": {sqlLockSeqs, 2, []string{"jobs_seq"}, false},
		"inputs":    {sqlInputs, 1, []string{"job_bodies_pkey", "job_outputs_pkey"}, false},
		"lines":     {sqlLines, 2, []string{"job_ready_pkey"}, false},
		"more":      {sqlMoreOfLine, 6, []string{"job_ready_pkey"}, false},
		"turns":     {sqlTurns, 1, []string{"job_turns_pkey"}, false},
		"use":       {sqlUse, 1, []string{"job_running_pkey"}, true},
		"due":       {sqlDue, 2, []string{"job_due_pkey", "jobs_seq"}, false},
		"drop due":  {sqlDropDue, 2, []string{"job_due_pkey"}, false},
		"next due":  {sqlNextDue, 1, []string{"job_due_pkey", "jobs_seq"}, false},
		"purge":     {sqlPurge, 4, []string{"jobs_seq"}, false},
		"get":       {sqlGet, 2, []string{"jobs_pkey", "job_bodies_pkey", "job_outputs_pkey"}, false},
		"list":      {sqlList, 6, []string{"jobs_seq"}, false},
		"list ids":  {sqlListIDs, 2, []string{"jobs_pkey"}, false},
		"running":   {sqlListRunning, 1, []string{"job_running_pkey", "jobs_pkey"}, false},
		"heads":     {sqlHeads, 2, []string{"job_ready_pkey"}, false},
		"counts":    {sqlCounts, 1, []string{"job_counters_pkey"}, false},
		"deliver":   {sqlDeliver, 4, []string{"job_outbox_due", "job_outbox_pkey"}, false},
	}
}

// Literal is literal.
func Literal(arg any) any { return literal(arg) }
