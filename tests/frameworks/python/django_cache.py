"""django-redis as Django's cache and as the store of its sessions."""

import django
from account import URL, for_a_while, report
from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": URL,
            "OPTIONS": {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"},
        }
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    INSTALLED_APPS=["django.contrib.sessions"],
    SECRET_KEY="no secret",
)
django.setup()

from importlib import import_module  # noqa: E402

from django.core.cache import cache  # noqa: E402


def main():
    engine = import_module(settings.SESSION_ENGINE)
    wrong = put = 0
    for n in for_a_while():
        value = {"name": f"user {n}", "list": list(range(n % 40)), "text": "some text of a page " * (n % 30)}
        cache.set(f"page:{n}", value, timeout=600)
        session = engine.SessionStore()
        session["user"], session["cart"] = n, [f"item:{i}" for i in range(n % 5)]
        session.save()
        again = engine.SessionStore(session_key=session.session_key)
        cache.set("counter", 0) if n == 0 else None
        checks = [
            cache.get(f"page:{n}") == value,
            cache.get(f"page:{n // 2}") is not None,
            again.get("user") == n and again["cart"] == session["cart"],
            cache.incr("counter") == n + 1,
            cache.add(f"page:{n}", 1) is False,
            len(cache.get_many([f"page:{n}", f"page:{n // 3}", "none"])) == (2 if n // 3 != n else 1),
            590 < cache.ttl(f"page:{n}") <= 600,
            cache.touch(f"page:{n}", 700) and cache.expire(f"page:{n}", 800),
        ]
        if n % 50 == 0:
            cache.set_many({f"gone:{n}:{i}": i for i in range(20)})
            checks += [cache.delete_pattern(f"gone:{n}:*") == 20, list(cache.iter_keys(f"gone:{n}:*")) == []]
            with cache.lock("lock", timeout=5):
                checks.append(not cache.lock("lock").acquire(blocking=False))
        wrong += checks.count(False)
        put += 1
    report(put=put, lost=wrong, twice=0)
