package postgres_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/postgres"
)

// A store over the database that DATABASE_URL would name. Several programs may open it.
func Example() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://podyard@db.example.com/podyard?sslmode=verify-full", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}
