package config

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit/budget"
)

func TestCostsOfTheConfigurationAreThoseOfEverybodyThenThoseOfTheUser(t *testing.T) {
	c, err := Parse("yard.json", []byte(`{
		"keys": [{"key": "bench", "user": "bench", "exempt": true}],
		"budgets": {"costPerHour": 2.5, "costPerMonth": 100, "users": {"alice": {"costPerHour": -1, "pods": 5}, "bench": {"costPerHour": 1}}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	s := budget.NewSet(c.users())
	for user, want := range map[string]budget.Cost{"carol": {PerHour: 2.5, PerMonth: 100}, "alice": {PerMonth: 100}, "bench": {}} {
		if got := s.Cost(user); got != want {
			t.Errorf("%s: %+v, want %+v", user, got, want)
		}
	}
}

func TestPricesAreThoseOfTheCatalogOfThisMachine(t *testing.T) {
	c, err := Parse("yard.json", []byte(`{"prices":{"gpus":{"A":{"pod":2},"B":{"pod":1}},"vcpu":{"pod":0.5,"worker":0.25},"disk":1,"stoppedDisk":2,"volume":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	cat := catalog.Local(4, 16, catalog.GPUType{ID: "A"})
	unknown := c.Prices.apply(&cat)
	if len(unknown) != 1 || unknown[0] != "B" {
		t.Errorf("types that are not offered: %v, want B", unknown)
	}
	if cat.GPUs[0].Price != (catalog.GPUPrice{Secure: 2, Community: 2, Serverless: 2}) || cat.CPUs[0].Price != (catalog.CPUPrice{Secure: 0.5, Serverless: 0.25}) ||
		cat.Storage != (catalog.StoragePrices{Disk: 1, Stopped: 2, Standard: 3}) {
		t.Errorf("the catalog is %+v", cat)
	}
}

func TestAWrongAmountIsAnErrorThatNamesItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"budgets":{"costPerHour":-2}}`:                       "budgets.costPerHour",
		`{"budgets":{"users":{"alice":{"costPerMonth":"x"}}}}`: "budgets.users.alice.costPerMonth",
		`{"prices":{"vcpu":{"pod":-1}}}`:                       "prices.vcpu.pod",
		`{"prices":{"gpus":{"A":{"worker":1e12}}}}`:            "prices.gpus.A.worker",
		`{"catalog":"sample","prices":{"disk":1}}`:             "prices",
	} {
		if _, err := Parse("yard.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to name %s", text, err, want)
		}
	}
}
