// Curator's InterProcessMutex as an adapter: the lines of ../adapter/adapter.h. One session for all threads, a mutex for
// each thread and name, as its documentation shows.

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Curator {
    private static final int WORDS = 4;

    private final String where;
    private final CuratorFramework client;
    private final List<InterProcessMutex> held = new ArrayList<>();

    private Curator(String where) throws Exception {
        this.where = where;
        client = CuratorFrameworkFactory.builder().connectString(where)
                .sessionTimeoutMs(Integer.parseInt(System.getenv().getOrDefault("BENCH_SESSION_MS", "4000")))
                .retryPolicy(new ExponentialBackoffRetry(1000, 3)).build();
        client.start();
        client.blockUntilConnected();
    }

    /** As its build wrote it into the jar, whose manifest and, in Debian, whose name do not tell it. */
    static String version() throws IOException {
        Properties written = new Properties();
        try (InputStream in = InterProcessMutex.class.getResourceAsStream("/META-INF/maven/org.apache.curator/curator-recipes/pom.properties")) {
            if (in != null)
                written.load(in);
        }
        return "Curator " + written.getProperty("version", "of unknown version");
    }

    private InterProcessMutex mutex(String name) {
        return new InterProcessMutex(client, "/bench-curator/" + name);
    }

    /** Instants of one thread, as they are written. */
    private static final class Records {
        private long[] all = new long[WORDS * 4096];
        private int used;

        void add(long asked, long granted, long releasing, long done) {
            if (used == all.length)
                all = java.util.Arrays.copyOf(all, 2 * used);
            all[used++] = asked;
            all[used++] = granted;
            all[used++] = releasing;
            all[used++] = done;
        }
    }

    private void turns(Map<String, String> order, int number, Records records) throws Exception {
        String name = order.get("name") + (order.get("own").equals("1") ? "/" + number : "");
        long from = Long.parseLong(order.get("from_ns")), to = Long.parseLong(order.get("to_ns"));
        long hold = 1000 * Long.parseLong(order.get("hold_us"));
        long end = to + 1000000 * Long.parseLong(order.get("patience_ms"));
        InterProcessMutex mutex = mutex(name);
        while (System.nanoTime() < from)
            LockSupport.parkNanos(from - System.nanoTime());
        for (long done = 0; done < to;) {
            long asked = System.nanoTime();
            if (!mutex.acquire(Math.max(1, end - asked), TimeUnit.NANOSECONDS)) {
                records.add(asked, 0, 0, System.nanoTime());
                return;
            }
            long granted = System.nanoTime();
            if (hold > 0)
                Thread.sleep(hold / 1000000, (int) (hold % 1000000));
            long releasing = System.nanoTime();
            mutex.release();
            done = System.nanoTime();
            records.add(asked, granted, releasing, done);
        }
    }

    private interface Body {
        void run() throws Exception;
    }

    private static Thread thread(Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Exception problem) {
                System.err.println("Curator: " + problem);
                Runtime.getRuntime().halt(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void runTurns(Map<String, String> order) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Records> lists = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(order.getOrDefault("threads", "1")); i++) {
            Records records = new Records();
            int number = i;
            lists.add(records);
            threads.add(thread(() -> turns(order, number, records)));
        }
        for (Thread one : threads)
            one.join();
        try (FileOutputStream out = new FileOutputStream(order.get("out"))) {
            for (Records records : lists) {
                ByteBuffer bytes = ByteBuffer.allocate(8 * records.used).order(ByteOrder.nativeOrder());
                bytes.asLongBuffer().put(records.all, 0, records.used);
                out.write(bytes.array());
            }
        }
    }

    private void hold(Map<String, String> order) throws Exception {
        for (int i = 0; i < Integer.parseInt(order.get("count")); i++) {
            held.add(mutex(order.get("name") + "/" + i));
            held.get(i).acquire();
        }
    }

    private void waitFor(Map<String, String> order) throws Exception {
        for (int i = 0; i < Integer.parseInt(order.get("count")); i++) {
            Curator another = new Curator(where);
            thread(() -> {
                InterProcessMutex mutex = another.mutex(order.get("name"));
                mutex.acquire();
                mutex.release();
            });
        }
    }

    private boolean obey(String verb, Map<String, String> order) throws Exception {
        switch (verb) {
        case "turns":
            runTurns(order);
            return true;
        case "hold":
            hold(order);
            return true;
        case "wait":
            waitFor(order);
            return true;
        default:
            return false;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Curator curator = new Curator(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready " + version());
        for (String line; (line = lines.readLine()) != null && !line.startsWith("quit");) {
            Map<String, String> order = new HashMap<>();
            String[] words = line.trim().split("\\s+");
            for (int i = 1; i < words.length; i++)
                order.put(words[i].substring(0, words[i].indexOf('=')), words[i].substring(words[i].indexOf('=') + 1));
            System.out.println(curator.obey(words[0], order) ? "done" : "cannot");
        }
        curator.client.close(); // and with it all that is held
        System.exit(0);
    }
}
