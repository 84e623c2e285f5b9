import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;

/**
 * Jedis with a pool and pipelines; Lettuce with many calls at once over one connection, and
 * with its client-side cache.
 */
public class Clients {
    static final String SCRIPT =
        "local old = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return old";
    static final AtomicLong asked = new AtomicLong();
    static final AtomicLong wrong = new AtomicLong();

    static void check(boolean right, String what) {
        asked.incrementAndGet();
        if (!right) {
            wrong.incrementAndGet();
            System.err.println(what);
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(System.getenv("PORT"));
        long end = System.nanoTime() + (long) (Double.parseDouble(System.getenv("SECONDS")) * 1e9);
        var threads = Executors.newFixedThreadPool(6);
        var jedis = new JedisPooled("127.0.0.1", port);
        for (int t = 0; t < 4; t++) {
            int thread = t;
            threads.submit(() -> {
                try {
                    jedis(jedis, thread, end);
                } catch (RuntimeException e) {
                    check(false, "jedis: " + e);
                }
            });
        }
        threads.submit(() -> {
            try {
                lettuce(port, end);
            } catch (Exception e) {
                check(false, "lettuce: " + e);
            }
        });
        threads.submit(() -> {
            try {
                lettuceCache(port, end);
            } catch (Exception e) {
                check(false, "lettuce's cache: " + e);
            }
        });
        threads.shutdown();
        check(threads.awaitTermination(300, TimeUnit.SECONDS), "threads end");
        System.out.printf("ACCOUNT {\"put\": %d, \"lost\": %d, \"twice\": 0}%n", asked.get(), wrong.get());
        System.exit(0);
    }

    static void jedis(JedisPooled jedis, int thread, long end) {
        for (int round = 0; System.nanoTime() < end; round++) {
            String key = "jedis:" + thread + ":" + round % 50;
            jedis.set(key, "v" + round);
            check(("v" + round).equals(jedis.get(key)), "get");
            check(("v" + round).equals(jedis.eval(SCRIPT, List.of(key), List.of("new"))), "eval");
            try (Pipeline pipe = jedis.pipelined()) {
                List<Response<Long>> replies = new ArrayList<>();
                pipe.del(key + ":l");
                for (int i = 0; i < 50; i++) replies.add(pipe.rpush(key + ":l", "item " + i));
                pipe.sync();
                for (int i = 0; i < 50; i++) check(replies.get(i).get() == i + 1, "rpush");
            }
            jedis.hset(key + ":h", Map.of("a", "1", "b", "2"));
            check(jedis.hgetAll(key + ":h").equals(Map.of("a", "1", "b", "2")), "hgetall");
            jedis.zadd(key + ":z", Map.of("x", 1.5, "y", 2.5));
            check(jedis.zscore(key + ":z", "y") == 2.5, "zscore");
        }
    }

    static void lettuce(int port, long end) throws Exception {
        try (var client = RedisClient.create("redis://127.0.0.1:" + port)) {
            var calls = client.connect().async();
            for (int round = 0; System.nanoTime() < end; round++) {
                List<RedisFuture<String>> replies = new ArrayList<>();
                for (int i = 0; i < 200; i++) {
                    calls.set("lettuce:" + i, round + ":" + i);
                    replies.add(calls.get("lettuce:" + i));
                }
                for (int i = 0; i < 200; i++) check((round + ":" + i).equals(replies.get(i).get()), "get");
                RedisFuture<String> old = calls.eval(SCRIPT, ScriptOutputType.VALUE, new String[] {"lettuce:0"}, "n");
                check((round + ":0").equals(old.get()), "eval");
            }
        }
    }

    /** Reads come from the map until the server tells that the key has changed. */
    static void lettuceCache(int port, long end) throws Exception {
        try (var client = RedisClient.create("redis://127.0.0.1:" + port)) {
            Map<String, String> map = new ConcurrentHashMap<>();
            var writer = client.connect().sync();
            var frontend = ClientSideCaching.enable(
                CacheAccessor.forMap(map), client.connect(), TrackingArgs.Builder.enabled());
            for (int round = 0; round == 0 || System.nanoTime() < end; round++) {
                for (int i = 0; i < 20; i++) writer.set("cached:" + i, round + ":" + i);
                for (int i = 0; i < 20; i++) {
                    sees(frontend, "cached:" + i, round + ":" + i);
                    check((round + ":" + i).equals(map.get("cached:" + i)), "it is in the cache");
                }
                writer.del("cached:0");
                sees(frontend, "cached:0", null);
                writer.eval(SCRIPT, ScriptOutputType.VALUE, new String[] {"cached:1"}, "of a script");
                sees(frontend, "cached:1", "of a script");
                writer.pexpire("cached:2", 20);
                sees(frontend, "cached:2", null);
                writer.rename("cached:3", "cached:4");
                sees(frontend, "cached:3", null);
                sees(frontend, "cached:4", round + ":3");
            }
        }
    }

    /** Reads until it sees the value: what was cached before must go. */
    static void sees(CacheFrontend<String, String> frontend, String key, String wanted) throws Exception {
        for (int turn = 0; turn < 2000; turn++) {
            if (Objects.equals(frontend.get(key), wanted)) {
                check(true, "");
                return;
            }
            Thread.sleep(5);
        }
        check(false, key + " is not " + wanted);
    }
}
