/*
 * The engine: a graph of items on SimGrid's fluid network model.
 *
 * Platform: one host per GPU and four links per GPU (NVLink and NIC, in and out), plus an uplink
 * pair per leaf when leaves can be a limit. Links that can never be full, such as a non-blocking
 * switch, are left out: the solver's work grows with every link that couples flows. Routes are
 * computed from the GPU numbers, so memory is linear in GPUs.
 *
 * Model: CM02 with crosstraffic and the TCP window switched off, on links without latency: plain
 * max-min fair sharing. (CM02 weighs flows by 1 / latency of their route, which would favour short
 * routes.)
 *
 * Dates: SimGrid solves again at every date, and in a plan of 10^5 flows nearly each flow has a
 * date of its own. So when time stops at a date, everything due within the precision after it
 * happens at this stop too: flows about to end are ended, items about to start are started. What
 * they are early is remembered: an item's own dates (start_s, end_s) run ahead of the engine's
 * clock by little more than the precision.
 *
 * A flow that is ended early leaves bytes that its ports have not carried. The ports keep them as a
 * debt, and flows that start there carry it in addition to their own bytes; in turn, one that would
 * have started when the early one really ended starts without a lead. What is owed in the end
 * delays the last flow of a port. So merging changes which flows share for a moment, but every port
 * carries all its bytes, and no result is faster than the busiest port allows.
 *
 * Items: a communication is created only when its predecessors are done, since SimGrid scans a list
 * of all existing ones at each completion. JOIN and DELAY items never enter the network; dates
 * still to come wait in a queue of our own, driven by SimGrid timers. Sizes are integers in
 * SimGrid, so bytes and bandwidths are scaled by a power of two, which changes no date.
 *
 * Cost: about 0.3 us per item, 1.5 us per flow, and per distinct date about 0.5 us per flow of the
 * component of flows that share links.
 */

#include "sim/refit-netsim-private.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <new>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/Action.hpp>
#include <simgrid/kernel/resource/Model.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

namespace s4u = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

namespace {

/* Rounding only: dates within the caller's precision are merged here, see time_stopped(). */
constexpr const char *ENGINE_PRECISION = "surf/precision:1e-11";

/* What a port may owe until somebody pays, in times of what it carries within the precision. */
constexpr double DEBT_LIMIT = 8;

/* Numbers of the ports that a flow goes through: its route. */
struct Ports {
    guint n = 0;
    std::array<guint, 4> numbers{};

    void add(guint number) {
        numbers[n++] = number;
    }
    const guint *begin() const {
        return numbers.data();
    }
    const guint *end() const {
        return numbers.data() + n;
    }
};

/* Ports in order: NVLink out and in, NIC out and in of GPU 0, of GPU 1, ...; then of leaves. */
Ports ports_between(const RefitNetsimPlatform &platform, guint from, guint to) {
    bool inside = from / platform.gpus_per_domain == to / platform.gpus_per_domain;
    guint link = inside ? 0 : 2;
    Ports ports;

    ports.add(4 * from + link);
    if (!inside && platform.n_leaves > 0 && platform.leaf_of[from] != platform.leaf_of[to]) {
        ports.add(4 * platform.n_gpus + 2 * platform.leaf_of[from]);
        ports.add(4 * platform.n_gpus + 2 * platform.leaf_of[to] + 1);
    }
    ports.add(4 * to + link + 1);
    return ports;
}

/* Zeroes, in large pages where the system has them: graphs are large and met at random. */
template <typename T> void make_large(std::vector<T> &list, std::size_t n) {
    list.reserve(n);
    refit_netsim_advise(list.data(), n * sizeof(T));
    list.resize(n);
}

/* One flat zone; points are created in the order of GPU numbers. */
class GpuZone : public routing::NetZoneImpl {
  public:
    explicit GpuZone(const RefitNetsimPlatform &platform)
        : routing::NetZoneImpl("gpus"), platform_(platform) {
    }

    std::vector<s4u::Host *> build(double scale) {
        std::vector<s4u::Host *> hosts;

        first_id_ = get_table_size();
        for (guint gpu = 0; gpu < platform_.n_gpus; gpu++)
            hosts.push_back(get_iface()->create_host("gpu" + std::to_string(gpu), 1e9)->seal());
        for (guint gpu = 0; gpu < platform_.n_gpus; gpu++) {
            add_ports("nvlink", gpu, platform_.nvlink_bytes_per_s * scale);
            add_ports("nic", gpu, platform_.nic_bytes_per_s * scale);
        }
        for (guint leaf = 0; leaf < platform_.n_leaves; leaf++)
            add_ports("leaf", leaf, platform_.leaf_uplink_bytes_per_s * scale);
        get_iface()->seal();
        return hosts;
    }

    void get_local_route(const routing::NetPoint *src, const routing::NetPoint *dst,
                         routing::Route *route, double *) override {
        auto from = static_cast<guint>(src->id() - first_id_);
        auto to = static_cast<guint>(dst->id() - first_id_);

        for (guint port : ports_between(platform_, from, to))
            route->link_list_.push_back(ports_[port]->get_impl());
    }

    const std::vector<s4u::Link *> &ports() const {
        return ports_;
    }

  private:
    void add_ports(const char *kind, guint number, double bandwidth) {
        for (const char *direction : {"-up", "-down"})
            ports_.push_back(get_iface()
                                 ->create_link(kind + std::to_string(number) + direction, bandwidth)
                                 ->seal());
    }

    const RefitNetsimPlatform &platform_;
    unsigned long first_id_ = 0;
    std::vector<s4u::Link *> ports_;
};

class Simulation {
  public:
    Simulation(const RefitNetsimPlatform &platform, const RefitNetsimGraph &graph,
               double precision_s, RefitNetsimTime *times, RefitNetsimStatus *status)
        : platform_(platform), graph_(graph), precision_s_(precision_s), times_(times),
          status_(status) {
        make_large(states_, graph.n_items);
        for (guint64 i = 0; i < graph.successor_offsets[graph.n_items]; i++)
            states_[graph.successors[i] & ~REFIT_NETSIM_ON_START].n_before++;
    }

    void run() {
        xbt_log_control_set("root.thresh:critical");
        s4u::Engine engine("refit");
        for (const char *setting :
             {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e20",
              "debug/clean-atexit:no", ENGINE_PRECISION})
            s4u::Engine::set_config(setting);

        scale_ = scale_for_sizes();
        auto *zone = new GpuZone(platform_); /* owned by the engine */
        hosts_ = zone->build(scale_);
        engine.seal_platform();
        for (const s4u::Link *port : zone->ports())
            debts_.push_back({port->get_bandwidth()});
        s4u::Activity::on_completion_cb([this](const s4u::Activity &activity) {
            completed(static_cast<guint>(reinterpret_cast<guintptr>(activity.get_data<void>())),
                      activity.get_impl());
        });
        s4u::Engine::on_time_advance_cb([this, &engine](double) { time_stopped(engine); });

        for (guint item = 0; item < graph_.n_items; item++)
            if (states_[item].n_before == 0)
                ready_.push_back(item);
        start_ready();
        arm();
        engine.run();
        settle_debts();
        status_->makespan_s = makespan_s_;
        for (guint item = 0; times_ != nullptr && item < graph_.n_items; item++)
            times_[item] = states_[item].time;
    }

  private:
    using Due = std::pair<double, guint>;

    /* All of an item that changes, in one place: what follows is met at random. */
    struct State {
        RefitNetsimTime time;
        guint n_before; /* predecessors that are not done */
    };

    /* A flow under way. */
    struct Active {
        s4u::CommPtr flow;
        guint item;
        double lead_s; /* its start minus the engine's clock then */
    };

    /* What a port has not carried of flows that were ended early. Bytes are scaled. */
    struct Debt {
        double bandwidth;
        double bytes = 0;
        double rate = 0;       /* of the flow that was ended early last */
        double last_end_s = 0; /* of any flow, on the engine's clock */
        guint last_item = 0;
    };

    struct Early {
        double seconds, bytes;
    };

    /* Brings the largest size near 2^50: no size loses a relevant digit by becoming an integer. */
    double scale_for_sizes() const {
        double largest = 0;
        int exponent = 0;

        for (guint item = 0; item < graph_.n_items; item++)
            if (graph_.items[item].kind == REFIT_NETSIM_FLOW)
                largest = std::max(largest, graph_.items[item].bytes);
        std::frexp(largest, &exponent);
        return std::ldexp(1.0, std::min(std::max(50 - exponent, 0), 50));
    }

    static double now_s() {
        return s4u::Engine::get_clock();
    }

    bool is_due(double date_s) const {
        return date_s <= now_s() + precision_s_;
    }

    /* SimGrid has ended the flows of this very date; the ones that follow closely end as well. */
    void time_stopped(const s4u::Engine &engine) {
        finished_.clear(); /* a communication must outlive the callback that announces its end */
        early_.clear();
        for (auto *model : engine.get_all_models()) {
            auto &heap = model->get_action_heap();
            while (!heap.empty() && is_due(heap.top_date())) {
                double date_s = heap.top_date();
                auto *action = heap.pop();
                early_[action->get_activity()] = {date_s - now_s(), action->get_remains()};
                action->finish(simgrid::kernel::resource::Action::State::FINISHED);
                heap.remove(action);
            }
        }
        handle_due();
    }

    /* A list instead of recursion: chains of joins can be as long as the graph. */
    void start_ready() {
        while (!ready_.empty()) {
            guint item = ready_.back();
            ready_.pop_back();
            start(item);
        }
    }

    void start(guint item) {
        const RefitNetsimItem &what = graph_.items[item];
        double start_s = states_[item].time.start_s;

        release(item, REFIT_NETSIM_ON_START, start_s);
        if (what.kind != REFIT_NETSIM_FLOW)
            end(item, start_s + (what.kind == REFIT_NETSIM_DELAY ? what.delay_s : 0));
        else if (is_due(start_s))
            start_flow(item);
        else
            due_.emplace(start_s, item);
    }

    void start_flow(guint item) {
        const RefitNetsimItem &what = graph_.items[item];
        auto flow = s4u::Comm::sendto_init();
        guint place;

        if (free_.empty()) {
            place = static_cast<guint>(active_.size());
            active_.emplace_back();
        } else {
            place = free_.back();
            free_.pop_back();
        }
        active_[place] = {flow, item, states_[item].time.start_s - now_s()};
        flow->set_payload_size(static_cast<uint64_t>(
            std::llround(std::max(what.bytes * scale_ + take_debt(active_[place]), 1.0))));
        flow->set_data(reinterpret_cast<void *>(static_cast<guintptr>(place)));
        flow->set_source(hosts_[what.src])->set_destination(hosts_[what.dst]); /* starts it */
    }

    Ports ports_of(guint item) const {
        return ports_between(platform_, graph_.items[item].src, graph_.items[item].dst);
    }

    void leave_debt(guint item, Early early) {
        for (guint port : ports_of(item)) {
            Debt &debt = debts_[port];

            debt.last_end_s = now_s();
            debt.last_item = item;
            if (early.seconds > 0) {
                debt.bytes += early.bytes;
                debt.rate = early.bytes / early.seconds;
            }
        }
    }

    /*
     * What a new flow carries of the debt of its ports: as much as all of them owe, so that none
     * carries another's debt; and of one that owes a lot, what is above the limit. Takes that much
     * off the lead.
     */
    double take_debt(Active &active) {
        const Ports ports = ports_of(active.item);
        double most = 0, shared = INFINITY, rate = 0, lead_s = active.lead_s;

        for (guint port : ports) {
            const Debt &debt = debts_[port];

            shared = std::min(shared, debt.bytes);
            most = std::max(most, debt.bytes - DEBT_LIMIT * debt.bandwidth * precision_s_);
            rate = std::max(rate, debt.rate);
        }
        most = std::max(most, shared);
        if (!(most > 0))
            return 0;
        for (guint port : ports)
            debts_[port].bytes -= most;
        active.lead_s = std::max(lead_s - most / rate, 0.0);
        return most;
    }

    /* Nothing follows that could carry the rest. */
    void settle_debts() {
        for (const Debt &debt : debts_) {
            RefitNetsimTime &last = states_[debt.last_item].time;

            if (!(debt.bytes > 0))
                continue;
            last.end_s = std::max(last.end_s, debt.last_end_s + debt.bytes / debt.bandwidth);
            makespan_s_ = std::max(makespan_s_, last.end_s);
        }
    }

    void completed(guint place, const simgrid::kernel::activity::ActivityImpl *activity) {
        auto found = early_.find(activity);
        Early early = found == early_.end() ? Early{0, 0} : found->second;
        guint item = active_[place].item;

        finished_.push_back(std::move(active_[place].flow));
        free_.push_back(place);
        leave_debt(item, early);
        end(item, now_s() + active_[place].lead_s + early.seconds);
        start_ready();
        arm();
    }

    void end(guint item, double date_s) {
        states_[item].time.end_s = date_s;
        if (is_due(date_s))
            finish(item);
        else
            due_.emplace(date_s, item);
    }

    void finish(guint item) {
        makespan_s_ = std::max(makespan_s_, states_[item].time.end_s);
        status_->n_done++;
        release(item, 0, states_[item].time.end_s);
    }

    void release(guint item, guint when, double date_s) {
        for (guint64 i = graph_.successor_offsets[item]; i < graph_.successor_offsets[item + 1];
             i++) {
            guint successor = graph_.successors[i] & ~REFIT_NETSIM_ON_START;
            State &state = states_[successor];

            if ((graph_.successors[i] & REFIT_NETSIM_ON_START) != when)
                continue;
            state.time.start_s = std::max(state.time.start_s, date_s + graph_.lags_s[i]);
            if (--state.n_before == 0)
                ready_.push_back(successor);
        }
    }

    /* A flow that has not ended waits for its start, everything else for its end. */
    void handle_due() {
        while (!due_.empty() && is_due(due_.top().first)) {
            guint item = due_.top().second;
            due_.pop();
            if (graph_.items[item].kind == REFIT_NETSIM_FLOW && states_[item].time.end_s == 0)
                start_flow(item);
            else
                finish(item);
            start_ready();
        }
        arm();
    }

    /* Time must stop at the next date that is due. */
    void arm() {
        if (due_.empty() || (armed_s_ > now_s() && armed_s_ <= due_.top().first))
            return;
        armed_s_ = due_.top().first;
        simgrid::kernel::timer::Timer::set(armed_s_, [this] { handle_due(); });
    }

    const RefitNetsimPlatform &platform_;
    const RefitNetsimGraph &graph_;
    double precision_s_;
    RefitNetsimTime *times_;
    RefitNetsimStatus *status_;
    double scale_ = 1;
    double makespan_s_ = 0;
    double armed_s_ = 0;
    std::vector<s4u::Host *> hosts_;
    std::vector<State> states_; /* per item */
    std::vector<Active> active_;
    std::vector<guint> free_; /* places in it */
    std::vector<s4u::CommPtr> finished_;
    std::unordered_map<const simgrid::kernel::activity::ActivityImpl *, Early> early_;
    std::vector<Debt> debts_; /* per port */
    std::vector<guint> ready_;
    std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
};

} // namespace

/*
 * SimGrid 3.32 keeps all communications in one std::list and searches it from the front at each
 * completion, which is half of the time with thousands in flight. Nodes of that list have 24 bytes;
 * laid out densely instead of between other objects, the search is up to three times faster. So in
 * the simulating child, and only there, allocations of that size come from a block of their own.
 * Sanitizers bring their own operator new and keep it.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constexpr std::size_t NODE_SIZE = 24, N_NODES = 1u << 17; /* 3 MiB; what exceeds it is malloc's */

union Node {
    Node *next;
    char bytes[NODE_SIZE];
};

Node *node_block, *free_nodes; /* nullptr in the parent: nothing changes there */

void allocate_nodes_densely() {
    node_block = static_cast<Node *>(std::malloc(N_NODES * sizeof(Node)));
    for (std::size_t i = node_block != nullptr ? N_NODES : 0; i-- > 0;) {
        node_block[i].next = free_nodes;
        free_nodes = &node_block[i];
    }
}

bool is_node(const void *memory) {
    return node_block != nullptr && memory >= node_block && memory < node_block + N_NODES;
}

} // namespace

/* Inlined, the two would look to the compiler like malloc paired with delete. */
[[gnu::noinline]] void *operator new(std::size_t size) {
    if (size == NODE_SIZE && free_nodes != nullptr) {
        Node *node = free_nodes;
        free_nodes = node->next;
        return node;
    }
    void *memory = std::malloc(size != 0 ? size : 1);
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}

[[gnu::noinline]] void operator delete(void *memory) noexcept {
    if (is_node(memory)) {
        Node *node = static_cast<Node *>(memory);
        node->next = free_nodes;
        free_nodes = node;
        return;
    }
    std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept {
    operator delete(memory);
}

#else

static void allocate_nodes_densely() {
}

#endif

void refit_netsim_simgrid(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                          double precision_s, RefitNetsimTime *times, RefitNetsimStatus *status) {
    allocate_nodes_densely();
    try {
        Simulation(*platform, *graph, precision_s, times, status).run();
    } catch (const std::exception &exception) {
        g_strlcpy(status->error, exception.what(), sizeof status->error);
    }
}

const char *refit_netsim_version(void) {
    return "SimGrid " G_STRINGIFY(SIMGRID_VERSION_MAJOR) "." G_STRINGIFY(SIMGRID_VERSION_MINOR);
}
