# Sidekiq (Debian's ruby-sidekiq): two processes of five threads, retries, jobs that are
# due later, jobs put in by hundreds. One process is killed with SIGKILL half-way: what
# its threads had in hand is lost, as Sidekiq's documentation says of its basic fetch.

require "json"
require "sidekiq"
require "sidekiq/api"

PORT = ENV.fetch("PORT")
FOLDER = ENV.fetch("FOLDER")
REDIS = { url: "redis://127.0.0.1:#{PORT}/0" }.freeze
Sidekiq.configure_server { |config| config.redis = REDIS; config.average_scheduled_poll_interval = 1 }
Sidekiq.configure_client { |config| config.redis = REDIS }

class Work
  include Sidekiq::Job
  sidekiq_options retry: 5
  sidekiq_retry_in { 1 }

  def perform(job, fails)
    if fails && first_time(job)
      raise "once"
    end
    File.open("#{FOLDER}/done", "a") { |file| file.syswrite("#{job}\n") }
  end

  def first_time(job)
    File.open("#{FOLDER}/tried-#{job}", File::CREAT | File::EXCL)
    true
  rescue Errno::EEXIST
    false
  end
end

return unless $PROGRAM_NAME == __FILE__

def launch
  Process.spawn("sidekiq", "-r", __FILE__, "-c", "5", "-e", "production", out: :err)
end

def counts
  File.exist?("#{FOLDER}/done") ? File.readlines("#{FOLDER}/done").map(&:to_i).tally : {}
end

seconds = Float(ENV.fetch("SECONDS"))
begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
passed = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun }
workers = [launch, launch]
put = 0
killed = false
while put.zero? || (passed.call < seconds && put < 1000 * seconds)
  Sidekiq::Client.push_bulk("class" => Work, "args" => (put...put + 100).map { |job| [job, (job % 17).zero?] })
  put += 100
  Work.perform_in(1, put, false)
  put += 1
  if !killed && counts.size > 50
    Process.kill("KILL", workers[0])
    Process.wait(workers[0])
    workers[0] = launch
    killed = true
  end
end
limit = passed.call + 120
sleep 0.1 while passed.call < limit && counts.size < put - (killed ? 5 : 0)
workers.each { |pid| Process.kill("TERM", pid) }
workers.each { |pid| Process.wait(pid) }
found = counts
lost = (0...put).count { |job| !found.key?(job) }
lost = [lost - 5, 0].max if killed
puts "ACCOUNT #{JSON.generate(put: put, lost: lost, twice: found.values.count { |n| n > 1 }, killed: killed, dead: Sidekiq::DeadSet.new.size)}"
