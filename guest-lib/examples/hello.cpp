// c++ -std=c++11 -I../include hello.cpp && trapline run --start-off --analyzer count --by roi -- ./a.out
#include "trapline.h"
#include <iostream>
#include <numeric>
#include <vector>

namespace {

// Tracing, and a region of interest, for as long as it lives.
class Traced {
public:
    explicit Traced(const char *region) : region_(region)
    {
        trapline_roi_begin(1, region_);
        trapline_start(TRAPLINE_SCOPE_DEFAULT);
    }
    ~Traced()
    {
        trapline_stop(TRAPLINE_SCOPE_DEFAULT);
        trapline_roi_end(1, region_);
    }
    Traced(const Traced &) = delete;
    Traced &operator=(const Traced &) = delete;

private:
    const char *region_;
};

} // namespace

int main()
{
    std::vector<int> numbers(1000);
    int sum;
    {
        Traced traced("accumulate");
        std::iota(numbers.begin(), numbers.end(), 1);
        sum = std::accumulate(numbers.begin(), numbers.end(), 0);
    }
    std::cout << sum << '\n';
}
